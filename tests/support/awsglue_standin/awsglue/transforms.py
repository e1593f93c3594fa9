"""Transforms as classes."""


class ApplyMapping:
    @staticmethod
    def apply(frame, mappings, **_):
        return frame.apply_mapping(mappings)
