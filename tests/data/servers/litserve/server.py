"""A speech recogniser."""

import litserve as ls


class SpeechAPI(ls.LitAPI):
    def setup(self, device):
        self.model = lambda sounds: [len(sound) for sound in sounds]

    def decode_request(self, request):
        return request["sound"]

    def predict(self, sounds):
        return self.model(sounds)

    def encode_response(self, output):
        return {"text": output}


if __name__ == "__main__":
    api = SpeechAPI(max_batch_size=16, batch_timeout=0.01)
    server = ls.LitServer(api, accelerator="gpu", devices=1, workers_per_device=2, timeout=10)
    server.run(port=8000)
