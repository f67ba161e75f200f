"""BibTeX for a run: the lab, and the papers of the methods that it compared. Only what is known for sure is
filled in; a method of the lab's own cites the lab and the work that it builds on."""

from __future__ import annotations

from collections.abc import Iterable

from backend import __version__

LAB = "kvreuselab"
ENTRIES: dict[str, str] = {
    "ye2025kvcomm": """@inproceedings{ye2025kvcomm,
  title = {{KVCOMM}: Online Cross-context {KV}-cache Communication for Efficient {LLM}-based Multi-agent
    Systems},
  author = {Ye, Hancheng and Gao, Zhengqi and Ma, Mingyuan and Wang, Qinsi and Fu, Yuzhe and Chung, Ming-Yu
    and
    Lin, Yueqian and Liu, Zhijian and Zhang, Jianyi and Zhuo, Danyang and Chen, Yiran},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2025},
  eprint = {2510.12872},
  archiveprefix = {arXiv}
}""",
    "liang2026judges": """@misc{liang2026judges,
  title = {When {KV} Cache Reuse Fails in Multi-Agent Systems: Cross-Candidate Interaction is Crucial for
    {LLM}
    Judges},
  author = {Liang, Sichu and Wang, Zhenglin and Chu, Jiajia and Xia, Pengfei and Zang, Hui and Zhou, Deyu},
  year = {2026},
  eprint = {2601.08343},
  archiveprefix = {arXiv}
}""",
    "yang2025kvlink": """@misc{yang2025kvlink,
  title = {{KVLink}: Accelerating Large Language Models via Efficient {KV} Cache Reuse},
  author = {Yang, Jingbo and Hou, Bairu and Wei, Wei and Bao, Yujia and Chang, Shiyu},
  year = {2025},
  eprint = {2502.16002},
  archiveprefix = {arXiv}
}""",
    "yao2025cacheblend": """@inproceedings{yao2025cacheblend,
  title = {{CacheBlend}: Fast Large Language Model Serving for {RAG} with Cached Knowledge Fusion},
  author = {Yao, Jiayi and Li, Hanchen and Liu, Yuhan and Ray, Siddhant and Cheng, Yihua and Zhang, Qizheng
    and
    Du, Kuntai and Lu, Shan and Jiang, Junchen},
  booktitle = {Proceedings of the Twentieth European Conference on Computer Systems ({EuroSys})},
  year = {2025},
  eprint = {2405.16444},
  archiveprefix = {arXiv}
}""",
    "hu2025epic": """@inproceedings{hu2025epic,
  title = {{EPIC}: Efficient Position-Independent Caching for Serving Large Language Models},
  author = {Hu, Junhao and Huang, Wenrui and Wang, Weidong and Wang, Haoyi and Hu, Tiancheng and Zhang, Qin
    and
    Feng, Hao and Chen, Xusheng and Shan, Yizhou and Xie, Tao},
  booktitle = {Proceedings of the 42nd International Conference on Machine Learning},
  year = {2025},
  eprint = {2410.15332},
  archiveprefix = {arXiv}
}""",
    "gim2024promptcache": """@inproceedings{gim2024promptcache,
  title = {Prompt Cache: Modular Attention Reuse for Low-Latency Inference},
  author = {Gim, In and Chen, Guojun and Lee, Seung-seob and Sarda, Nikhil and Khandelwal, Anurag and
    Zhong, Lin},
  booktitle = {Proceedings of Machine Learning and Systems},
  year = {2024},
  eprint = {2311.04934},
  archiveprefix = {arXiv}
}""",
    "sun2024block": """@misc{sun2024block,
  title = {Block-Attention for Efficient {RAG}},
  author = {Sun, East and Wang, Yan and Tian, Lan},
  year = {2024},
  eprint = {2409.15355},
  archiveprefix = {arXiv}
}""",
    "kwon2023vllm": """@inproceedings{kwon2023vllm,
  title = {Efficient Memory Management for Large Language Model Serving with {PagedAttention}},
  author = {Kwon, Woosuk and Li, Zhuohan and Zhuang, Siyuan and Sheng, Ying and Zheng, Lianmin and Yu, Cody
    Hao and
    Gonzalez, Joseph E. and Zhang, Hao and Stoica, Ion},
  booktitle = {Proceedings of the 29th Symposium on Operating Systems Principles},
  year = {2023},
  eprint = {2309.06180},
  archiveprefix = {arXiv}
}""",
    "segments": """@unpublished{segments,
  title = {Cross-Query {KV} Segment Reuse for Template-Heavy Agents},
  author = {{Anonymous}},
  note = {A research plan}
}""",
}
#: Method -> keys. A method that is not here is the reference, or a control of the lab.
PAPERS: dict[str, tuple[str, ...]] = {
    "prefix": ("kwon2023vllm",),
    "naive": ("ye2025kvcomm", "liang2026judges"),
    "kvcomm": ("ye2025kvcomm",),
    "palkv": ("liang2026judges", "ye2025kvcomm"),
    "slotaligned": ("liang2026judges", "ye2025kvcomm"),
    "cacheblend": ("yao2025cacheblend",),
    "epic": ("hu2025epic",),
    "promptcache": ("gim2024promptcache",),
    "block_attention": ("sun2024block",),
    "kvlink": ("yang2025kvlink",),
    "segments": ("segments",),
    "repair": ("liang2026judges",),
    "masked": ("liang2026judges",),
    "recompute_slots": ("liang2026judges",),
}


def citations(methods: Iterable[str]) -> str:
    """BibTeX of the lab and of the papers behind these methods, each once."""
    keys = dict.fromkeys(key for name in methods for key in PAPERS.get(name, ()))
    own = f"""@software{{{LAB},
  title = {{{{KV Reuse Lab}}}},
  version = {{{__version__}}},
  license = {{Apache-2.0}}
}}"""
    return "\n\n".join([own, *(ENTRIES[key] for key in keys)]) + "\n"
