#!/bin/sh
# Train the default, evaluate it, translate a few sentences: `make demo` runs this.
set -eu

python train.py
run=$(ls -td runs/pocket/*/ | head -n 1)
run=${run%/}

echo
echo "Scores on the test sentences:"
python -m transformer evaluate checkpoint="$run" > /dev/null  # the same as JSON

echo
echo "A few translations:"
# Of the test text; a model of half the updates translates them without a fault, too.
sentences='The lawyer can return to the hospital on Monday.
There are ninety-nine trees in my garden.
We are smiling while all the shop assistants are working.'
translations=$(printf '%s\n' "$sentences" | python -m transformer translate checkpoint="$run")
printf '%s\n' "$translations" | sed 's/^/  /'

cat <<END

To try next (after: . .venv/bin/activate):

  echo 'They painted the picture last month and admired it.' | transformer translate checkpoint=$run
  transformer evaluate checkpoint=$run split=test_novel

A model of your own text, step by step: docs/first_model.md
END
