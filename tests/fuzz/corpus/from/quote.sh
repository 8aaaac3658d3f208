A="--num-layers 2
B=$A