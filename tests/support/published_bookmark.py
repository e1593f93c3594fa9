"""A bookmark that AWS Glue wrote in October 2024, and the files that it had read.

Its owner published it in a public repository on GitHub, as what ``aws glue get-job-bookmark`` printed. The names
and times of the files were found by their hashes: each name and each second near the run was tried.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone

STARTED = "2024-10-28T02:12:06.503Z"
HASHES = (
    "f437cb0563bdfffd53da1a73762abf0e,5383de8c63a953499ae982cc067dd29e,eeadf7ffc60fc409ebac38aa1e603ca7,"
    "e19f459dc7d51fb981b69127ed8ff2db,bdc8e044b1a2af7fdb3b52870aeb02c0,8b7df3ed4aecec850fcb518be54ba81b,"
    "acc9e2ed056c2d6d80b8abe97cdf44aa,833e7abda36954c63f867a3214fd16fb,eb2d3a4e4907ee0509bacb422456b4e1,"
    "57fd18c45402cb49f89311baee78d5bb,8e44c6b4d9618fcc9155b70f479ce688,8ef4cc7843c8792625ee80bef181f90d,"
    "84a3af8f940f642af12558be61b7ae3b,9963f53dd31d8975a2e94594c71498fb,6f9e6eb2aacb6122cb52f5230f4e66f4,"
    "28a5e953f8db056920c15e79196cd11f,7f36d16aed769368ff859bf630da0926,6031b0c95af4693d3b8adedec745b388,"
    "bcf7c27ab451fd9256a8d4d276c67879,d1d1a077928f2b4c922de9e4ed2417ed,b4e3da25fbb56dba94e874711b7f766d,"
    "d591c03a2184e900b466af7e72da2860,80a3d2cc54008a4b4aee2d52aaba1c4e,b6867e94a5ff3e976f488a33115e8cc0,"
    "383b7757b04452da06945c68cd3be6c6,96ed19593fb4262b82779afa5b4219b9,4985e4cbfe326d9a55bc47afe7399386,"
    "31d27f04eba03852a3d6a1552aef8a49,3cb9b793f8c547d5dfa3b2d5088dafab,aa1e0391eda6e73034bab2d028c8cf66,"
    "4e10a779af7c41f48f07dde96932fd3e,f3191791a6c58abf13f8cd5ff4c08c6d,35e97f5c401c8271df9d2976f318bceb,"
    "1327a12b82573d0d47d5de331b056097,492f9eff5ba14ee8bf1e917aa13935a4,d7caed73d1914f54f9bb37deb96f08d1,"
    "4c86bc3cac52e9846ada1e6dae920f66,10e73569d08ee77da11d41a6d9592d9a,9d8e4cf76da826ec9bc9a021984eb96d,"
    "a8612664c71a9b8b04c7cf397027c80,5ff7b6b1edbec4ad590c42a93530d0e1,d5e1b1b0caa5a7a97bd2efcb3c31490a,"
    "9e069e8e3c832e4ea7a912b51e1caa05,33cff46ece4ef9f0db757be753d903f1,80de35b535afdd776d7995b5c6c9496,"
    "d7ee7e102329015f08adc94b1a045cc4,1c87da5e5a4d79cee2c037df3987bcf1,19cd71eb2b70718ec9fe0d3650bc8f16"
)
_SECONDS = (
    881, 880, 903, 913, 914, 917, 917, 925, 925, 926, 881, 881,
    881, 892, 893, 892, 892, 894, 901, 902, 903, 904, 909, 913,
)  # fmt: skip
"""Past 2024-10-28T01:46:40Z, of the hours 0 to 23."""
FILES = [
    (
        f"github-activity-bucket/landing/2024-09-13-{hour}.json.gz",
        datetime.fromtimestamp(1_730_080_000 + at, timezone.utc),
    )
    for hour, at in enumerate(_SECONDS)
]
"""Places and times of change."""
_STAMPS = {
    "RUN": "2", "HIGH_BAND": "900000", "CURR_LATEST_PARTITION": "0", "CURR_LATEST_PARTITIONS": "",
    "CURR_RUN_START_TIME": STARTED, "INCLUDE_LIST": HASHES,
}  # fmt: skip
CONTEXT = "AWSGlueDataCatalog_node1730078287682"
BOOKMARK = json.dumps({CONTEXT: {"jsonClass": "HadoopDataSourceJobBookmarkState", "timestamps": _STAMPS}})
