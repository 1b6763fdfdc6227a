"""A model for a real Cog server: paints a square of one colour, slowly if it is told to."""

import tempfile
import time
from pathlib import Path as File

from cog import BasePredictor, Input, Path
from PIL import Image


class Predictor(BasePredictor):
    def predict(
        self,
        color: str = Input(default="red"),
        seconds: float = Input(default=0.0),
        error: str = Input(default=""),
    ) -> Path:
        time.sleep(seconds)
        if error:
            raise ValueError(error)
        path = File(tempfile.mkdtemp(), "square.png")
        Image.new("RGB", (16, 16), color).save(path)
        return Path(path)
