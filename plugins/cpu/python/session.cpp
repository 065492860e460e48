// Sessions in the Python module. A step allocates nothing.
#include "python/session.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/session.h"
#include "python/arrays.h"
#include "python/calls.h"

namespace vcdeploy {
namespace {

using namespace nb::literals;

std::size_t size(int value) { return static_cast<std::size_t>(value); }

// An array over memory that the session also writes.
Made<float> view(const std::shared_ptr<float[]>& memory, const Shape& shape) {
    auto holder = std::make_unique<std::shared_ptr<float[]>>(memory);
    nb::capsule owner(holder.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<float[]>*>(p); });
    holder.release();
    return Made<float>(memory.get(), shape.size(), shape.data(), owner);
}

// The tokens of a step in the form that needs no conversion: an int, or a contiguous array of B int64.
class StepTokens {
  public:
    // Whether they have this form.
    bool take(nb::handle tokens, std::size_t batch) {
        if (batch == 1 && PyLong_CheckExact(tokens.ptr())) {
            few_[0] = PyLong_AsLongLong(tokens.ptr());
            if (few_[0] == -1 && PyErr_Occurred()) PyErr_Clear();  // -1 is no token either
            return true;
        }
        Py_buffer buffer;
        if (!PyObject_CheckBuffer(tokens.ptr())) return false;
        if (PyObject_GetBuffer(tokens.ptr(), &buffer, PyBUF_ND | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            return false;
        }
        const bool fits = buffer.format && (!std::strcmp(buffer.format, "l") || !std::strcmp(buffer.format, "q")) &&
                          buffer.itemsize == sizeof(std::int64_t) && buffer.ndim == 1 &&
                          buffer.shape[0] == static_cast<Py_ssize_t>(batch);
        if (fits) {
            if (batch > kFew) many_.resize(batch);
            std::memcpy(data(), buffer.buf, batch * sizeof(std::int64_t));
        }
        PyBuffer_Release(&buffer);
        return fits;
    }

    std::int64_t* data() { return many_.empty() ? few_ : many_.data(); }

  private:
    static constexpr std::size_t kFew = 64;
    std::int64_t few_[kFew];
    std::vector<std::int64_t> many_;
};

// False if the tokens must be converted first.
bool step(Session& session, nb::handle tokens) {
    StepTokens ids;
    if (!ids.take(tokens, size(session.batch()))) return false;
    for (int n = 0; n < session.batch(); ++n) check_token(ids.data()[n], "tokens", session.network().vocab());
    Interruptions pause{nb::none()};
    const nb::gil_scoped_release free;
    session.step(ids.data(), std::ref(pause));
    return true;
}

// The sequences that a call is about: all of them for None.
std::vector<int> which_of(const Session& session, const std::optional<std::vector<int>>& rows) {
    if (!rows) return session.all();
    std::vector<bool> seen(size(session.batch()));
    for (const int n : *rows) {
        if (n < 0 || n >= session.batch())
            throw nb::value_error(("there is no sequence " + std::to_string(n) + ": there are " +
                                   std::to_string(session.batch()) + ", counted from 0")
                                      .c_str());
        if (seen[size(n)]) throw nb::value_error(("sequence " + std::to_string(n) + " is listed twice").c_str());
        seen[size(n)] = true;
    }
    return *rows;
}

using Rows = std::optional<std::vector<int>>;

void feed(Session& session, const Array& tokens, nb::handle check, const Rows& rows) {
    const std::vector<int> which = which_of(session, rows);
    const Shape shape = sizes(tokens, "tokens", "[T, B]", 2, true);
    const std::vector<std::int64_t> ids =
        checked_tokens(tokens, "tokens", {shape[0], which.size()}, session.network().vocab());
    Interruptions pause(check);
    const nb::gil_scoped_release free;
    session.feed(which, ids.data(), static_cast<int>(shape[0]), std::ref(pause));
}

nb::tuple generate(Session& session, const Array& uniforms, const std::vector<Sampling>& sampling,
                   const MaybeArray& allowed, nb::handle check, const Rows& rows,
                   std::optional<std::vector<std::int64_t>> most, int alternatives) {
    const std::vector<int> which = which_of(session, rows);
    const std::size_t count = which.size(), vocab = size(session.network().vocab());
    const Shape written{sizes(uniforms, "uniforms", "[length, B]", 2, true)[0], count};
    const std::vector<double> places = copied<double>(uniforms, "uniforms", written);
    for (const double place : places)
        if (!(place >= 0 && place <= 1)) throw nb::value_error("uniforms must be between 0 and 1");
    if (sampling.size() != count) throw nb::value_error("sampling must hold options for every sequence");
    if (!most) most.emplace(count, static_cast<std::int64_t>(written[0]));
    if (most->size() != count) throw nb::value_error("most must hold a length for every sequence");
    if (alternatives < 0 || size(alternatives) > vocab)
        throw nb::value_error("alternatives must be from 0 to the size of the vocabulary");
    const std::vector<unsigned char> mask =
        allowed ? copied<unsigned char>(*allowed, "allowed", {count, vocab}) : std::vector<unsigned char>();
    const Shape listed{written[0], count, size(alternatives)};
    const Made<std::int64_t> tokens = made<std::int64_t>(written), lengths = made<std::int64_t>({count}),
                             others = made<std::int64_t>(listed);
    const Made<float> m = made<float>({written[0], count, size(session.network().layers())});
    const Made<double> log_probabilities = made<double>(written), other_log_probabilities = made<double>(listed);
    std::fill_n(tokens.data(), tokens.size(), 0);  // the rest of a sequence that ends early
    std::fill_n(m.data(), m.size(), 0.0f);
    std::fill_n(log_probabilities.data(), log_probabilities.size(), 0.0);
    std::fill_n(others.data(), others.size(), 0);
    std::fill_n(other_log_probabilities.data(), other_log_probabilities.size(), 0.0);
    const Generation generation{sampling.data(),
                                places.data(),
                                static_cast<int>(written[0]),
                                most->data(),
                                mask.empty() ? nullptr : mask.data(),
                                alternatives,
                                tokens.data(),
                                m.data(),
                                log_probabilities.data(),
                                others.data(),
                                other_log_probabilities.data(),
                                lengths.data()};
    {
        Interruptions pause(check);
        const nb::gil_scoped_release free;
        session.generate(which, generation, std::ref(pause));
    }
    return nb::make_tuple(tokens, m, log_probabilities, lengths, others, other_log_probabilities);
}

// The state, m, and of every sequence what it read: how many tokens, how many of them generated, and the last ones.
nb::tuple save(Session& session, const Rows& rows) {
    const std::vector<int> which = which_of(session, rows);
    const Network& network = session.network();
    const std::size_t count = which.size();
    const Made<float> state = made<float>({size(network.state_rows()), count, size(network.dim())}),
                      m = made<float>({count, size(network.layers())});
    std::vector<Past> past(count);
    {
        Interruptions pause{nb::none()};
        const nb::gil_scoped_release free;
        session.save(which, state.data(), m.data(), past.data(), std::ref(pause));
    }
    nb::list pasts;
    for (const Past& each : past) {
        const Made<std::int64_t> history = made<std::int64_t>({size(each.history.size())});
        for (int n = 0; n < each.history.size(); ++n)
            history.data()[n] = each.history.back(each.history.size() - 1 - n);
        pasts.append(nb::make_tuple(each.read, each.generated, history));
    }
    return nb::make_tuple(state, m, pasts);
}

void restore(Session& session, const Array& state, const Array& m,
             const std::vector<std::tuple<std::int64_t, std::int64_t, Array>>& pasts, const Rows& rows) {
    const std::vector<int> which = which_of(session, rows);
    const Network& network = session.network();
    const std::size_t count = which.size();
    const std::vector<float> states =
        copied<float>(state, "state", {size(network.state_rows()), count, size(network.dim())});
    const std::vector<float> fractions = copied<float>(m, "m", {count, size(network.layers())});
    if (pasts.size() != count) throw nb::value_error("what was read must be given for every sequence");
    std::vector<Past> past;
    for (const auto& [read, generated, history] : pasts) {
        const Shape shape = sizes(history, "history", "[n]", 1, true);
        if (read < static_cast<std::int64_t>(shape[0]) || generated < 0 || generated > read)
            throw nb::value_error("a sequence can't have generated more than it read, or remember more");
        past.push_back({History(checked_tokens(history, "history", shape, network.vocab())), read, generated});
    }
    Interruptions pause{nb::none()};
    const nb::gil_scoped_release free;
    session.restore(which, states.data(), fractions.data(), past.data(), std::ref(pause));
}

std::unique_ptr<Session> fork(Session& session) {
    const Network& network = session.network();
    const std::size_t batch = size(session.batch());
    std::vector<float> state(size(network.state_rows()) * batch * network.dim()), m(batch * network.layers());
    std::vector<Past> past(batch);
    Interruptions pause{nb::none()};
    const nb::gil_scoped_release free;
    session.save(session.all(), state.data(), m.data(), past.data(), std::ref(pause));
    auto made = std::make_unique<Session>(session.shared_network(), session.batch());
    made->restore(made->all(), state.data(), m.data(), past.data(), std::ref(pause));
    return made;
}

void reset(Session& session, const std::vector<int>& rows) {
    const std::vector<int> which = which_of(session, rows);
    Interruptions pause{nb::none()};
    const nb::gil_scoped_release free;
    session.reset(which, std::ref(pause));
}

void make_sampling(Sampling* place, double temperature, int top_k, double top_p, double min_p,
                   double repetition_penalty, int repetition_window,
                   const std::vector<std::vector<std::int64_t>>& stop) {
    const Sampling made{repetition_penalty, repetition_window, temperature, top_k, top_p, min_p, stop};
    made.check();
    new (place) Sampling(made);
}

}  // namespace

void bind_session(nb::module_& m) {
    nb::class_<Sampling>(m, "Sampling", "Sampling options.")
        .def("__init__", make_sampling, nb::kw_only(), "temperature"_a = 1.0, "top_k"_a = 0, "top_p"_a = 1.0,
             "min_p"_a = 0.0, "repetition_penalty"_a = 1.0, "repetition_window"_a = 64,
             "stop"_a = std::vector<std::vector<std::int64_t>>());
    m.attr("MOST_HISTORY") = History::kMost;

    nb::class_<Session>(m, "Session", "Sequences that are read and generated token by token.")
        .def("step", step, "tokens"_a.none(),
             "Reads an int or an int64 array [B] and computes logits. Returns False if tokens is neither.")
        .def("feed", feed, "tokens"_a, "check"_a = nb::none(), "rows"_a = nb::none(),
             "Reads tokens [T, B], without logits.")
        .def("generate", generate, "uniforms"_a, "sampling"_a, "allowed"_a = nb::none(), "check"_a = nb::none(),
             "rows"_a = nb::none(), "most"_a = nb::none(), "alternatives"_a = 0,
             "uniforms [length, B], options of every sequence, allowed [B, vocab] -> tokens [length, B], "
             "m [length, B, layers], log-probabilities [length, B], lengths [B], and the most likely symbols and their "
             "log-probabilities [length, B, alternatives].")
        .def(
            "observe",
            [](Session& session, const Rows& rows) {
                const std::vector<int> which = which_of(session, rows);
                Interruptions pause{nb::none()};
                const nb::gil_scoped_release free;
                session.observe(which, std::ref(pause));
            },
            "rows"_a = nb::none(), "Reads what was sampled last, and computes the logits.")
        .def("save", save, "rows"_a = nb::none(),
             "state [S, B, D], m [B, layers], and of every sequence (read, generated, last tokens).")
        .def("restore", restore, "state"_a, "m"_a, "pasts"_a, "rows"_a = nb::none(), "Goes on from what save returned.")
        .def("fork", fork, "A session of its own with the same past.")
        .def("reset", reset, "rows"_a, "Starts these sequences again, from a zero state.")
        .def_prop_ro(
            "logits",
            [](const Session& session) {
                return view(session.logits(), {size(session.batch()), size(session.network().vocab())});
            },
            nb::rv_policy::automatic, "A view of the logits, [B, vocab].")
        .def_prop_ro(
            "m",
            [](const Session& session) {
                return view(session.m(), {size(session.batch()), size(session.network().layers())});
            },
            nb::rv_policy::automatic, "A view of m, [B, layers].");
}

}  // namespace vcdeploy
