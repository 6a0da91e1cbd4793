"""An embedding service: texts are cut up one by one, and embedded together."""

from mosec import Server, Worker


class Tokenise(Worker):
    def forward(self, data):
        return data["text"].split()


class Embed(Worker):
    def forward(self, data):
        return [[float(len(word)) for word in words] for words in data]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Tokenise, num=4)
    server.append_worker(Embed, num=1, max_batch_size=32, max_wait_time=5, timeout=2)
    server.run()
