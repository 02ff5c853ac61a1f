"""JSON-like values in the texts of models: parsed strictly if valid, else leniently.

| need | take |
|---|---|
| a value that begins at an offset | `lenient.read_value`, or `strict.read_strict` or `lenient.read_lenient` alone |
| the value of a whole text | `repair.repair_json` |
| all values of a text | `repair.read_all` |
"""
