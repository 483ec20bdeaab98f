#!/bin/sh
# Train the default, evaluate it, translate a few sentences: `make demo` runs this.
set -eu

python train.py
run=$(ls -td runs/pocket/*/ | head -n 1)
run=${run%/}

echo
echo "Scores on the test sentences (sacreBLEU's JSON):"
python -m transformer evaluate checkpoint="$run"

echo
echo "A few translations:"
sentences='The old woman sees the small dog.
We do not want to wait because it rains.
Where did the teacher find the red book?'
translations=$(printf '%s\n' "$sentences" | python -m transformer translate checkpoint="$run")
printf '%s\n' "$translations" | sed 's/^/  /'

cat <<END

Three commands to try next (after: . .venv/bin/activate):

  echo 'Does the girl read a book?' | transformer translate checkpoint=$run
  transformer evaluate checkpoint=$run split=test_novel
  python train.py data=files data.source=en data.target=de 'data.train=[a.en,a.de]'
END
