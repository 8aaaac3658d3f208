X=aaaaaaaaaaaaaaaa
X=$X$X$X$X
X=$X$X$X$X
X=$X$X$X$X
X=$X$X$X$X
X=$X$X$X$X
X=$X$X$X$X
python a.py $X