"""A clock that shows what follows the day.

>>> monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
"""

import datetime


class Tomorrow(datetime.datetime):
    """A clock that stands at another day."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime(2031, 12, 9, 23, 59, 58, tzinfo=tz)
