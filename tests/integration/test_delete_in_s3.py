"""Tables in S3 that `tideline delete-pipeline` removes: a pipeline's own, by their properties."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from devtools.services.s3 import S3Server
from tests.fixtures.object_storage import place_in
from tideline.settings import make_settings
from tideline.store.objects import open_store
from tideline.warehouse.access import storage_options
from tideline_console.deleted_files import target_removals

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def test_the_tables_of_a_pipeline_go_and_no_others(s3: S3Server) -> None:
    place = place_in(s3)
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": f"{place.url}-store", **s3.access},
            "warehouse": {"url": place.url},
        }
    )
    options = dict(storage_options(settings.warehouse_storage))

    def a_table(folder: str, pipeline: str, incarnation: str) -> str:
        owner = {"tideline.pipeline": pipeline, "tideline.incarnation": incarnation}
        url = f"{place.url}/{folder}"
        DeltaTable.create(
            url,
            ROWS.schema,
            configuration=owner,
            raise_if_key_not_exists=False,
            storage_options=options,
        )
        write_deltalake(url, ROWS, mode="append", storage_options=options)
        return folder

    kept = [
        a_table("public/theirs", "another", "one"),
        a_table("public/earlier", "shop", "an earlier life of the chain"),
        a_table("~rebuild/000001/public/theirs", "another", "one"),
    ]
    gone = [
        a_table("public/orders", "shop", "one"),
        a_table("odd%20schema/odd%20name", "shop", "one"),
        a_table("~rebuild/000001/public/orders", "shop", "one"),
    ]
    store = open_store(settings.warehouse_store())
    store.put("public/unreadable/_delta_log/00000000000000000000.json", b"{")
    removals = list(target_removals(settings, "one"))
    assert {one.what for one in removals} == {f"the table at {place.url}/{one}" for one in gone}
    for one in removals:
        one.remove()
    left = {key.partition("/_delta_log")[0].partition("/part-")[0] for key in store.list("")}
    assert left == {*kept, "public/unreadable"}
    assert list(target_removals(settings, "one")) == []
    assert len(list(target_removals(settings, None))) == 1, "of any life: the earlier one's"
