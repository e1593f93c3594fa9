"""A stand-in for AWS Glue's library, with its documented behaviour and none of this package's code.

The bookmark is a JSON file that the environment variable STANDIN_BOOKMARKS names.
"""
