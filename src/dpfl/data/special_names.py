"""The words that declare a table, and the endings of its files.

They are kept here, so that they can be known without reading any file.
"""

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
ROLES = ("site", "person", "time")
TABLE_WORDS = (
    "label",
    *ROLES,
    "task",
    "classes",
    "class_weights",
    "test",
    "columns",
    "sites",
    "absent",
    "delimiter",
    "decimal",
    "encoding",
    "paid",
)
"""The keys of [data] that declare a table."""
LEAF_WORDS = ("shape", "classes")
