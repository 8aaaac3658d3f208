"""Where DeepSpeed's ZeRO keeps the gradients of a parameter.  deepspeed is imported only if a parameter is its."""


def is_shared(p):
    return hasattr(p, "ds_id") or hasattr(p, "_hp_mapping")
