// One epoch of Adam on values and derivatives of a small multilayer perceptron, in one call.
//
// The equations are those of NOTE [Twin pass] (learning/networks.py) and NOTE [Differential loss]
// (learning/loss.py); the backward pass is derived in NOTE [Twin backward] (learning/twin_function.py).
// What is done here and not there:
//
//   * Rows lie along the vector lanes: an activation is [width][B], B rows at a time, so that a layer of
//     any width, 20 as well as 32, fills every lane, and a whole block stays in the first cache.
//   * Nothing is allocated in a step, and no Python runs between steps.
//   * Weight gradients are summed per lane over all blocks of a step, and across lanes once.
//
// Plain C interface, no dependencies: compiled with the system's compiler, loaded by ctypes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

enum Activation { SOFTPLUS = 0, TANH = 1, SILU = 2, SIN = 3, SIGMOID = 4 };

template <typename T> struct Lanes {
  typedef T type __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES)));
  static constexpr int count = VECTOR_BYTES / sizeof(T);
};

// Rows a block: four vectors, so that a tile of 4 outputs x 2 vectors repeats twice.
template <typename T> constexpr int ROWS = 4 * Lanes<T>::count;

template <typename T> T *aligned(std::vector<T> &storage, size_t numbers) {
  storage.assign(numbers + VECTOR_BYTES / sizeof(T), T(0));
  auto address = reinterpret_cast<uintptr_t>(storage.data());
  auto up = (address + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
  return storage.data() + (up - address) / sizeof(T);
}

// out[h] = scale (bias[h] + sum_j w[h * row + j * column] in[j]), [outs][B] from [ins][B].
template <typename T, bool BIAS>
void linear(const T *w, int row, int column, const T *bias, T scale, const T *in, int ins, T *out,
            int outs) {
  typedef typename Lanes<T>::type V;
  constexpr int B = ROWS<T>, L = Lanes<T>::count;
  for (int h = 0; h < outs; h += 4) {
    const int tile = std::min(4, outs - h);
    const T *w0 = w + h * row, *w1 = w + (h + std::min(1, tile - 1)) * row,
            *w2 = w + (h + std::min(2, tile - 1)) * row, *w3 = w + (h + tile - 1) * row;
    for (int r = 0; r < B; r += 2 * L) {
      V a0 = {}, a1 = {}, b0 = {}, b1 = {}, c0 = {}, c1 = {}, d0 = {}, d1 = {};
      for (int j = 0; j < ins; ++j) {
        const V x0 = *(const V *)(in + j * B + r), x1 = *(const V *)(in + j * B + r + L);
        const T p = w0[j * column], q = w1[j * column], s = w2[j * column], t = w3[j * column];
        a0 += p * x0; a1 += p * x1;
        b0 += q * x0; b1 += q * x1;
        c0 += s * x0; c1 += s * x1;
        d0 += t * x0; d1 += t * x1;
      }
      const V low[4] = {a0, b0, c0, d0}, high[4] = {a1, b1, c1, d1};
      // The last of a short tile is repeated in its place: w3 is row tile - 1.
      for (int i = 0; i < tile; ++i) {
        const int from = i == tile - 1 ? 3 : i;
        const T shift = BIAS ? bias[h + i] : T(0);
        *(V *)(out + (h + i) * B + r) = scale * (low[from] + shift);
        *(V *)(out + (h + i) * B + r + L) = scale * (high[from] + shift);
      }
    }
  }
}

// sums[h][j][lane] += sum over vectors of left[h] * right[j].
template <typename T>
void outer(const T *left, int hs, const T *right, int js, T *sums) {
  typedef typename Lanes<T>::type V;
  constexpr int B = ROWS<T>, L = Lanes<T>::count;
  for (int h = 0; h < hs; ++h) {
    const V l0 = *(const V *)(left + h * B), l1 = *(const V *)(left + h * B + L),
            l2 = *(const V *)(left + h * B + 2 * L), l3 = *(const V *)(left + h * B + 3 * L);
    for (int j = 0; j < js; ++j) {
      const T *r = right + j * B;
      V *sum = (V *)(sums + (size_t(h) * js + j) * L);
      *sum += l0 * *(const V *)r + l1 * *(const V *)(r + L) + l2 * *(const V *)(r + 2 * L) +
              l3 * *(const V *)(r + 3 * L);
    }
  }
}

template <typename T> void row_sums(const T *left, int hs, T *sums) {
  typedef typename Lanes<T>::type V;
  constexpr int B = ROWS<T>, L = Lanes<T>::count;
  for (int h = 0; h < hs; ++h)
    for (int r = 0; r < B; r += L) *(V *)(sums + h * L) += *(const V *)(left + h * B + r);
}

// a = f(z), s = f'(z), c = f''(z), elementwise. Loops the compiler can vectorise, exp and all.
template <typename T>
void activate(int kind, const T *__restrict z, T *__restrict a, T *__restrict s, T *__restrict c,
              int numbers) {
  switch (kind) {
  case SOFTPLUS:
    for (int i = 0; i < numbers; ++i) {
      // exp of a negative number never overflows; both sides share it.
      const T e = std::exp(-std::abs(z[i])), half = T(1) / (T(1) + e);
      const T sigmoid = z[i] > 0 ? half : e * half;
      a[i] = std::max(z[i], T(0)) + std::log(T(1) + e);
      s[i] = sigmoid;
      c[i] = sigmoid * (T(1) - sigmoid);
    }
    break;
  case TANH:
    for (int i = 0; i < numbers; ++i) {
      const T e = std::exp(T(-2) * std::abs(z[i])), size = (T(1) - e) / (T(1) + e);
      const T tanh = z[i] > 0 ? size : -size;
      a[i] = tanh;
      s[i] = T(1) - tanh * tanh;
      c[i] = T(-2) * tanh * s[i];
    }
    break;
  case SILU:
    for (int i = 0; i < numbers; ++i) {
      const T e = std::exp(-std::abs(z[i])), half = T(1) / (T(1) + e);
      const T sigmoid = z[i] > 0 ? half : e * half, slope = sigmoid * (T(1) - sigmoid);
      a[i] = z[i] * sigmoid;
      s[i] = sigmoid + z[i] * slope;
      c[i] = slope * (T(2) + z[i] * (T(1) - T(2) * sigmoid));
    }
    break;
  case SIN:
    for (int i = 0; i < numbers; ++i) {
      a[i] = std::sin(z[i]);
      s[i] = std::cos(z[i]);
      c[i] = -a[i];
    }
    break;
  default: // SIGMOID
    for (int i = 0; i < numbers; ++i) {
      const T e = std::exp(-std::abs(z[i])), half = T(1) / (T(1) + e);
      const T sigmoid = z[i] > 0 ? half : e * half;
      a[i] = sigmoid;
      s[i] = sigmoid * (T(1) - sigmoid);
      c[i] = s[i] * (T(1) - T(2) * sigmoid);
    }
  }
}

template <typename T> void multiply(const T *x, const T *y, T *out, int numbers) {
  for (int i = 0; i < numbers; ++i) out[i] = x[i] * y[i];
}

struct Shape {
  int inputs, outputs, depth, activation;
  const int64_t *hidden;
};

template <typename T> struct Labels {
  const T *x, *y, *dydx;          // [N, D], [N, K], [N, K, D] or null; unknown ones are zero,
  const T *value_weight;          // [N, K] or null: factors on rows, zero where unknown,
  const T *derivative_weight;     // [N, K, D] or null.
  const T *value_factor;          // [K]: of the loss
  const T *derivative_factor;     // [K, D]
};

template <typename T> class Network {
public:
  Network(const Shape &shape, T omega) : shape(shape), omega(omega) {
    constexpr int B = ROWS<T>, L = Lanes<T>::count;
    widths.push_back(shape.inputs);
    for (int l = 0; l < shape.depth; ++l) widths.push_back(int(shape.hidden[l]));
    widths.push_back(shape.outputs);
    size_t parameters = 0, blocks = 0, widest = 0;
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      weight_at.push_back(parameters);
      parameters += size_t(widths[l]) * widths[l + 1];
      bias_at.push_back(parameters);
      parameters += widths[l + 1];
    }
    for (int width : widths) {
      at.push_back(blocks);
      blocks += size_t(width) * B;
      widest = std::max(widest, size_t(width) * B);
    }
    count = parameters;
    for (T **block : {&z, &a, &s, &c, &s_bar}) *block = aligned(store.emplace_back(), blocks);
    g = aligned(store.emplace_back(), blocks);
    h = aligned(store.emplace_back(), blocks);
    for (T **one : {&up, &down, &y_bar}) *one = aligned(store.emplace_back(), widest + B);
    labels_y = aligned(store.emplace_back(), size_t(shape.outputs) * B);
    labels_d = aligned(store.emplace_back(), size_t(shape.outputs) * shape.inputs * B);
    weights_y = aligned(store.emplace_back(), size_t(shape.outputs) * B);
    weights_d = aligned(store.emplace_back(), size_t(shape.outputs) * shape.inputs * B);
    sums = aligned(store.emplace_back(), parameters * L);
  }
  Network(const Network &) = delete;

  // Gradient of the loss over some rows into `gradient`; adds the terms to losses[0], losses[1].
  void gradient(const T *p, const Labels<T> &data, const int64_t *order, int64_t rows, T scale,
                T *gradient, double *losses) {
    constexpr int B = ROWS<T>, L = Lanes<T>::count;
    std::memset(sums, 0, count * L * sizeof(T));
    for (int64_t start = 0; start < rows; start += B)
      block(p, data, order + start, int(std::min<int64_t>(B, rows - start)), scale, losses);
    for (size_t i = 0; i < count; ++i) {
      T total = 0;
      for (int lane = 0; lane < L; ++lane) total += sums[i * L + lane];
      gradient[i] = total;
    }
  }

  size_t count;

private:
  Shape shape;
  T omega;
  std::vector<int> widths;
  std::vector<size_t> weight_at, bias_at, at;
  std::vector<std::vector<T>> store;
  T *z, *a, *s, *c, *s_bar, *g, *h, *up, *down, *y_bar;
  T *labels_y, *labels_d, *weights_y, *weights_d, *sums;

  void gather(const Labels<T> &data, const int64_t *order, int rows) {
    constexpr int B = ROWS<T>;
    const int D = shape.inputs, K = shape.outputs;
    for (int r = 0; r < B; ++r) {
      // A short last block repeats its first row, with weight zero.
      const int64_t n = order[r < rows ? r : 0];
      const bool real = r < rows;
      for (int d = 0; d < D; ++d) a[d * B + r] = data.x[n * D + d];
      for (int k = 0; k < K; ++k) {
        labels_y[k * B + r] = data.y[n * K + k];
        weights_y[k * B + r] = real ? (data.value_weight ? data.value_weight[n * K + k] : T(1)) : T(0);
      }
      if (!data.dydx) continue;
      for (int i = 0; i < K * D; ++i) {
        labels_d[i * B + r] = data.dydx[n * K * D + i];
        weights_d[i * B + r] =
            real ? (data.derivative_weight ? data.derivative_weight[n * K * D + i] : T(1)) : T(0);
      }
    }
  }

  void block(const T *p, const Labels<T> &data, const int64_t *order, int rows, T scale,
             double *losses) {
    constexpr int B = ROWS<T>, L = Lanes<T>::count;
    const int depth = shape.depth, D = shape.inputs, K = shape.outputs, last = widths[depth];
    gather(data, order, rows);
    for (int l = 0; l < depth; ++l) {
      linear<T, true>(p + weight_at[l], widths[l], 1, p + bias_at[l], omega, a + at[l], widths[l],
                      z + at[l + 1], widths[l + 1]);
      activate(shape.activation, z + at[l + 1], a + at[l + 1], s + at[l + 1], c + at[l + 1],
               widths[l + 1] * B);
    }
    const T *v = p + weight_at[depth];
    linear<T, true>(v, last, 1, p + bias_at[depth], T(1), a + at[depth], last, y_bar, K);
    for (int k = 0; k < K; ++k) {
      double sum = 0;
      for (int r = 0; r < B; ++r) {
        const T error = y_bar[k * B + r] - labels_y[k * B + r];
        const T factor = scale * data.value_factor[k] * weights_y[k * B + r];
        sum += double(factor * error * error);
        y_bar[k * B + r] = T(2) * factor * error;
      }
      losses[0] += sum;
    }
    std::memset(s_bar, 0, (at.back()) * sizeof(T));
    if (data.dydx)
      for (int k = 0; k < K; ++k) losses[1] += twin(p, k, data.derivative_factor + k * D, scale);
    // Back through the forward pass.
    outer(y_bar, K, a + at[depth], last, sums + weight_at[depth] * L);
    row_sums(y_bar, K, sums + bias_at[depth] * L);
    linear<T, false>(v, 1, last, nullptr, T(1), y_bar, K, up, last);
    for (int l = depth - 1; l >= 0; --l) {
      const int width = widths[l + 1];
      T *here = down;
      const T *slope = s + at[l + 1], *bend = c + at[l + 1], *twin_bar = s_bar + at[l + 1];
      for (int i = 0; i < width * B; ++i) here[i] = omega * (up[i] * slope[i] + twin_bar[i] * bend[i]);
      outer(here, width, a + at[l], widths[l], sums + weight_at[l] * L);
      row_sums(here, width, sums + bias_at[l] * L);
      if (l > 0) linear<T, false>(p + weight_at[l], 1, widths[l], nullptr, T(1), here, width, up, widths[l]);
    }
  }

  // Output k's way back, its loss, and the way back of that.
  double twin(const T *p, int k, const T *factors, T scale) {
    constexpr int B = ROWS<T>, L = Lanes<T>::count;
    const int depth = shape.depth, D = shape.inputs, last = widths[depth];
    const T *v = p + weight_at[depth] + size_t(k) * last;
    for (int i = 0; i < last; ++i)
      for (int r = 0; r < B; ++r) g[at[depth] + i * B + r] = v[i];
    for (int l = depth - 1; l >= 0; --l) {
      multiply(g + at[l + 1], s + at[l + 1], h + at[l + 1], widths[l + 1] * B);
      linear<T, false>(p + weight_at[l], 1, widths[l], nullptr, omega, h + at[l + 1], widths[l + 1],
                       g + at[l], widths[l]);
    }
    double loss = 0;
    for (int d = 0; d < D; ++d) {
      double sum = 0;
      for (int r = 0; r < B; ++r) {
        const int i = (k * D + d) * B + r;
        const T error = g[d * B + r] - labels_d[i], factor = scale * factors[d] * weights_d[i];
        sum += double(factor * error * error);
        up[d * B + r] = T(2) * factor * error;
      }
      loss += sum;
    }
    for (int l = 0; l < depth; ++l) {
      const int width = widths[l + 1];
      const T *turned = h + at[l + 1];
      if (omega != T(1))
        for (int i = 0; i < widths[l] * B; ++i) up[i] *= omega;
      outer(turned, width, up, widths[l], sums + weight_at[l] * L);
      linear<T, false>(p + weight_at[l], widths[l], 1, nullptr, T(1), up, widths[l], down, width);
      const T *row = g + at[l + 1], *slope = s + at[l + 1];
      T *bar = s_bar + at[l + 1];
      for (int i = 0; i < width * B; ++i) {
        bar[i] += down[i] * row[i];
        up[i] = down[i] * slope[i];
      }
    }
    row_sums(up, last, sums + (weight_at[depth] + size_t(k) * last) * L);
    return loss;
  }
};

// AdamW as torch has it: decay, then moments, then the step with both corrections of bias.
template <typename T>
void adam(T *p, const T *gradient, T *first, T *second, size_t count, int64_t step, double rate,
          double decay) {
  const double b1 = 0.9, b2 = 0.999;
  const T size = T(rate / (1 - std::pow(b1, double(step))));
  const T root = T(1 / std::sqrt(1 - std::pow(b2, double(step))));
  const T keep = T(1 - rate * decay);
  for (size_t i = 0; i < count; ++i) {
    first[i] += (gradient[i] - first[i]) * T(1 - b1);
    second[i] = second[i] * T(b2) + gradient[i] * gradient[i] * T(1 - b2);
    p[i] = p[i] * keep - size * first[i] / (std::sqrt(second[i]) * root + T(1e-8));
  }
}

template <typename T>
void epoch(const Shape &shape, double omega, const Labels<T> &data, const int64_t *order,
           const int64_t *bounds, int64_t batches, const double *rates, double entries, double decay,
           int64_t step, T *parameters, T *first, T *second, double *losses) {
  Network<T> network(shape, T(omega));
  std::vector<T> gradient(network.count);
  for (int64_t b = 0; b < batches; ++b) {
    const int64_t rows = bounds[b + 1] - bounds[b];
    network.gradient(parameters, data, order + bounds[b], rows, T(1 / (entries * double(rows))),
                     gradient.data(), losses);
    adam(parameters, gradient.data(), first, second, network.count, step + b + 1, rates[b], decay);
  }
}

} // namespace

#define PULLBACK_API(T, NAME)                                                                         \
  extern "C" void pullback_epoch_##NAME(                                                              \
      int64_t inputs, int64_t outputs, int64_t depth, const int64_t *hidden, int64_t activation,      \
      double omega, const T *x, const T *y, const T *dydx, const T *value_weight,                     \
      const T *derivative_weight, const T *value_factor, const T *derivative_factor,                  \
      const int64_t *order, const int64_t *bounds, int64_t batches, const double *rates,              \
      double entries, double decay, int64_t step, T *parameters, T *first, T *second,                 \
      double *losses) {                                                                               \
    const Shape shape{int(inputs), int(outputs), int(depth), int(activation), hidden};                \
    const Labels<T> data{x, y, dydx, value_weight, derivative_weight, value_factor,                   \
                         derivative_factor};                                                          \
    epoch<T>(shape, omega, data, order, bounds, batches, rates, entries, decay, step, parameters,     \
             first, second, losses);                                                                  \
  }                                                                                                   \
  extern "C" void pullback_gradient_##NAME(                                                           \
      int64_t inputs, int64_t outputs, int64_t depth, const int64_t *hidden, int64_t activation,      \
      double omega, const T *x, const T *y, const T *dydx, const T *value_weight,                     \
      const T *derivative_weight, const T *value_factor, const T *derivative_factor,                  \
      const int64_t *order, int64_t rows, double entries, const T *parameters, T *gradient,           \
      double *losses) {                                                                               \
    const Shape shape{int(inputs), int(outputs), int(depth), int(activation), hidden};                \
    const Labels<T> data{x, y, dydx, value_weight, derivative_weight, value_factor,                   \
                         derivative_factor};                                                          \
    Network<T> network(shape, T(omega));                                                              \
    network.gradient(parameters, data, order, rows, T(1 / (entries * double(rows))), gradient,        \
                     losses);                                                                         \
  }

PULLBACK_API(float, float32)
PULLBACK_API(double, float64)
