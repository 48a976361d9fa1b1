#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet, CSV, TSV and Arrow files, or folders of the `datasets` library, as JSON lines for --data.

    examples/to_jsonl.py data.parquet out.jsonl
    examples/to_jsonl.py my_dataset/ out/ --columns question,answer

A folder that save_to_disk() wrote gives one file for each split, named train.jsonl, validation.jsonl and
so on; other folders give one for each file. CSV needs nothing but Python, Parquet and Arrow need pyarrow,
folders of save_to_disk() need datasets. Rows are read a batch at a time.
"""
import argparse
import csv
import json
import math
import pathlib
import sys

BATCH = 1000


def rows_of_csv(path):
    csv.field_size_limit(sys.maxsize)
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        for row in reader:
            if None in row:
                sys.exit(f"{path}: line {reader.line_num}: it has more cells than there are columns (is a cell not quoted?)")
            yield row


def rows_of_parquet(path):
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=BATCH):
        yield from batch.to_pylist()


def rows_of_arrow(path):
    import pyarrow

    with pyarrow.memory_map(str(path)) as file:
        try:
            reader = pyarrow.ipc.open_stream(file)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(file)
            batches = (reader.get_batch(k) for k in range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            yield from batch.to_pylist()


READERS = {".csv": rows_of_csv, ".tsv": rows_of_csv, ".parquet": rows_of_parquet, ".arrow": rows_of_arrow}


def rows_of_split(split):
    for first in range(0, len(split), BATCH):
        columns = split[first : first + BATCH]
        yield from (dict(zip(columns, row)) for row in zip(*columns.values()))


def sources_of(path):
    """Pairs of a name and its rows."""
    if path.is_file():
        if path.suffix not in READERS:
            sys.exit(f"{path}: not one of {', '.join(READERS)} (give such a file, or a folder)")
        return [(path.stem, READERS[path.suffix](path))]
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        import datasets

        loaded = datasets.load_from_disk(str(path))
        splits = loaded.items() if isinstance(loaded, dict) else [("train", loaded)]
        return [(name, rows_of_split(split)) for name, split in splits]
    files = sorted(file for file in path.rglob("*") if file.suffix in READERS)
    if not files:
        sys.exit(f"{path}: the folder has no {', '.join(READERS)} (give another)")
    names = [file.relative_to(path).with_suffix("").as_posix() for file in files]
    for name, file in zip(names, files):
        if names.count(name) > 1:
            sys.exit(f"{file}: another file would be {name}.jsonl too (rename one of them)")
    return [(name, READERS[file.suffix](file)) for name, file in zip(names, files)]


def without_nan(value):
    """JSON has no word for numbers that are not finite, and a missing one is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list) else value


def write(rows, path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    draft = path.with_name(path.name + ".part")
    with open(draft, "w", encoding="utf-8") as file:
        for row in rows:
            missing = [name for name in columns if name not in row]
            if missing:
                draft.unlink()
                sys.exit(f"{path}: row {count + 1} has no column {missing[0]} (it has {', '.join(row)})")
            kept = {name: row[name] for name in columns} if columns else row
            file.write(json.dumps(without_nan(kept), ensure_ascii=False, default=str) + "\n")
            count += 1
    draft.replace(path)
    print(f"{path}: {count} records")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="file or folder")
    parser.add_argument("out", type=pathlib.Path, help="a .jsonl file, or a folder when there are several")
    parser.add_argument("--columns", default="", help="names to keep, separated by commas; all without it")
    options = parser.parse_args()
    columns = [name for name in options.columns.split(",") if name]
    sources = sources_of(options.source)
    if options.out.suffix == ".jsonl":
        if len(sources) > 1:
            sys.exit(f"{options.out}: {options.source} has {len(sources)} parts (give a folder)")
        return write(sources[0][1], options.out, columns)
    for name, rows in sources:
        write(rows, options.out / f"{name}.jsonl", columns)


if __name__ == "__main__":
    main()
