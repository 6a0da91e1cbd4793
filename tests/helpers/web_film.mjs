// Asks batchsim/web/js/film.js in Node: `node web_film.mjs FILM JOBS`, a line of JSON a job.
import { readFileSync } from "node:fs";

const [, , script, file] = process.argv;
const { Crowd, Requests, Tokens, comfortable, longest, placesIn, placesOf, slots, timeIn, unitOf } = await import(script);
const TYPES = { float64: Float64Array, int32: Int32Array, uint8: Uint8Array };
const jobs = JSON.parse(readFileSync(file), (_, value) => {
  if (!value?.dtype) return value;
  const bytes = Buffer.from(value.bytes, "base64");
  return new TYPES[value.dtype](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
});
const laneOf = (film) => {
  const [lane] = film.lanes;
  return new (lane.kind === "tokens" ? Tokens : Requests)(lane, film);
};

const does = {
  // The state of the first lane at each time.
  states({ film, times, within }) {
    const lane = laneOf(film);
    return times.map((time_s) => {
      const now = lane.at(time_s), numbered = (requests) => requests.map((i) => lane.first + i);
      const state = { words: lane.words(now, within), line: lane.line(now, within) };
      if (lane.kind === "tokens") return state;
      const computing = now.computing.map((b) => (b < 0 ? null : numbered(lane.members[b])));
      return { ...state, queue: numbered(now.queue), computing, arrived: now.arrived, served: now.served, lost: now.lost };
    });
  },
  short({ film, times }) { // what lanes next to each other say
    const lane = laneOf(film);
    return times.map((time_s) => lane.shortWords(lane.at(time_s)));
  },
  instants: ({ film }) => laneOf(film).instants,
  stories({ film }) {
    const lane = laneOf(film);
    return [...lane.arrival_s.keys()].map((i) => lane.story(i));
  },
  // How often a request's story reads the times at which the lane changes, on the average.
  reads({ film }) {
    const lane = laneOf(film);
    let reads = 0;
    const counted = (list) => new Proxy(list, { get: (of, name) => { reads += 1; return of[name]; } });
    lane.parts = lane.parts.map((part) => Object.fromEntries(Object.entries(part).map(([name, list]) => [name, counted(list)])));
    lane.arrival_s.forEach((_, i) => lane.story(i));
    return reads / lane.arrival_s.length;
  },
  // The requests that can be followed: number, latency, life, and the line that sent the batch.
  lives({ film }) {
    const lane = laneOf(film);
    return lane.latencies.map(([number, latency_s]) => [number, latency_s, lane.life(number), lane.lineOf(number)]);
  },
  labels({ film }) {
    const lane = laneOf(film);
    return lane.latencies.map(([number]) => lane.label(number));
  },
  time: ({ page_ms, time_s, digits }) => timeIn({ unit: unitOf(page_ms) }, time_s, digits),
  longest: ({ film }) => longest(film.lanes.map((lane) => new Tokens(lane, film))),
  slots: ({ box, count, largest, rows }) => slots(box, count, largest, rows),
  places: ({ box, waiting, servers, batch, em }) => placesIn(box, waiting, servers, batch, em),
  comfortable: ({ film }) => comfortable(film, laneOf(film)),
  // Where everybody is after steps from time to time, each a share of the way.
  crowd({ film, box, em, steps }) {
    const lane = laneOf(film), crowd = new Crowd(lane, placesOf(lane, box, em));
    return steps.map(([time_s, share]) => {
      const moving = crowd.move(lane.at(time_s), share);
      return { moving, of: [...crowd.of].map(([i, it]) => ({ ...it, i: lane.first + i })), coming: crowd.coming };
    });
  },
};

for (const job of jobs) console.log(JSON.stringify(does[job.does](job)));
