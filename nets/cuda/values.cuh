/* values.cuh: the kernels that read or write values of the net. kernels.cuh includes it once for each type of
 * values: VALUE, with VALUE_KERNEL(k_add) the name of the kernel for it. Arithmetic is float32 or double; a
 * result is rounded when it is stored. */

/* ---- images and layouts */

/* [images][a][b] -> [images][b][a]; n: the number of all values. */
VALUE_KERNEL(k_turn)(uint64_t n, uint32_t a, uint32_t b, const VALUE *in, VALUE *out)
{
    EACH(i, n) out[i] = in[turned(i, a, b)];
}

/* The same from floats. */
VALUE_KERNEL(k_turn_in)(uint64_t n, uint32_t a, uint32_t b, const float *in, VALUE *out)
{
    EACH(i, n) store(out[i], in[turned(i, a, b)]);
}

/* Copies of weights, from x and to g. */
VALUE_KERNEL(k_weights_in)
(const __grid_constant__ struct cnn_cuda_turns all, const float *x, VALUE *copies)
{
    const struct cnn_cuda_turn &t = turn_of_block(all);
    const struct turned_part part = turned_part_of(t);
    const float *in = x + t.at;
    VALUE *out = copies + t.to;

    if (t.a > 1 && t.b > 1)
        for (uint64_t i = part.first; i < part.end; i += CNN_CUDA_BLOCK)
            store(out[i], in[turned(i, t.a, t.b)]);
    else
        copy_in_order(part, in, out);
}

VALUE_KERNEL(k_weights_out)
(const __grid_constant__ struct cnn_cuda_turns all, const VALUE *copies, float *g)
{
    const struct cnn_cuda_turn &t = turn_of_block(all);
    const struct turned_part part = turned_part_of(t);
    const VALUE *in = copies + t.to;
    float *out = g + t.at;

    if (t.a > 1 && t.b > 1)
        for (uint64_t i = part.first; i < part.end; i += CNN_CUDA_BLOCK)
            out[i] = number(in[turned(i, t.b, t.a)]);
    else
        copy_in_order(part, in, out);
}

VALUE_KERNEL(k_convert)(uint64_t n, const float *in, VALUE *out)
{
    constexpr uint32_t width = 16 / sizeof(VALUE);
    const uint64_t groups = begins_group(in) && begins_group(out) ? n / width : 0, rest = groups * width;

    EACH(i, groups)
    {
        group<VALUE> to;
        for (uint32_t k = 0; k < width; k += 4) {
            const group<float> from = ((const group<float> *)in)[i * (width / 4) + k / 4];
            for (uint32_t j = 0; j < 4; j++)
                store(to.v[k + j], from.v[j]);
        }
        ((group<VALUE> *)out)[i] = to;
    }
    EACH(i, n - rest) store(out[rest + i], in[rest + i]);
}

/* Bytes to the net's input. is_hwc: the bytes are [H][W][C], otherwise [C][H][W]. */
VALUE_KERNEL(k_bytes)
(uint64_t n, uint32_t c, uint32_t places, uint32_t is_hwc, const uint8_t *in, const float *value_of,
 VALUE *out)
{
    EACH(i, n)
    {
        uint32_t channel = (uint32_t)(i % c);
        uint64_t place = i / c % places, image = i / c / places;
        uint64_t at = is_hwc ? i : (image * c + channel) * places + place;
        store(out[i], value_of[channel * 256 + in[at]]);
    }
}

/* The same of the part of each image that cuts[image] says; what lies outside of it is black, byte 0. */
VALUE_KERNEL(k_cut_bytes)
(uint64_t n, struct cnn_cuda_stored s, const uint8_t *in, const struct cnn_cuda_cut *cuts,
 const float *value_of, VALUE *out)
{
    EACH(i, n)
    {
        uint32_t channel = (uint32_t)(i % s.c), x = (uint32_t)(i / s.c % s.out_w);
        uint32_t y = (uint32_t)(i / s.c / s.out_w % s.out_h);
        uint64_t image = i / s.c / s.out_w / s.out_h;
        struct cnn_cuda_cut cut = cuts[image];
        int64_t row = (int64_t)cut.top + y;
        int64_t column = (int64_t)cut.left + (cut.mirrored ? s.out_w - 1 - x : x);
        uint8_t byte = 0;
        if (row >= 0 && column >= 0 && row < (int64_t)s.h && column < (int64_t)s.w) {
            uint64_t at = (uint64_t)row * s.w + (uint64_t)column, places = (uint64_t)s.h * s.w;
            byte =
                in[s.is_hwc ? (image * places + at) * s.c + channel : (image * s.c + channel) * places + at];
        }
        store(out[i], value_of[channel * 256 + byte]);
    }
}

/* Of groups.cuh. per: how many channels a thread handles, 1 or GROUP. */
#define GROUP (16 / sizeof(VALUE))

VALUE_KERNEL(k_copy_channels)
(uint64_t n, uint32_t per, uint32_t c, const VALUE *in, uint32_t in_stride, VALUE *out, uint32_t out_stride)
{
    if (per == GROUP)
        copy_channels<GROUP>(n, c, in, in_stride, out, out_stride);
    else
        copy_channels<1>(n, c, in, in_stride, out, out_stride);
}

/* ---- elementwise. in and out may be the same. */

VALUE_KERNEL(k_add)(uint64_t n, uint32_t has_relu, const VALUE *a, const VALUE *b, VALUE *out)
{
    const VALUE *const in[] = {a, b};
    each_of(n, in, out, [has_relu](const float(&x)[2]) {
        float sum = x[0] + x[1];
        return has_relu && sum < 0 ? 0 : sum;
    });
}

VALUE_KERNEL(k_bias)(uint64_t n, uint32_t c, const float *bias, VALUE *x)
{
    EACH(i, n) store(x[i], number(x[i]) + bias[i % c]);
}

VALUE_KERNEL(k_activate)(uint64_t n, enum cnn_cuda_activation kind, float slope, const VALUE *in, VALUE *out)
{
    const VALUE *const from[] = {in};
    if (kind == CNN_CUDA_RELU) /* a NaN is kept */
        each_of(n, from, out, [](const float(&x)[1]) { return x[0] < 0 ? 0 : x[0]; });
    else
        each_of(n, from, out, [kind, slope](const float(&x)[1]) { return activated(kind, slope, x[0]); });
}

/* part: added to dout; NULL: none. */
VALUE_KERNEL(k_activate_back)
(uint64_t n, enum cnn_cuda_activation kind, float slope, const VALUE *out, const VALUE *dout,
 const VALUE *part, VALUE *din)
{
    const VALUE *const two[] = {out, dout}, *const three[] = {out, dout, part};
    if (kind == CNN_CUDA_RELU && part == NULL)
        each_of(n, two, din, [](const float(&x)[2]) { return x[0] > 0 ? x[1] : 0; });
    else if (kind == CNN_CUDA_RELU)
        each_of(n, three, din, [](const float(&x)[3]) { return x[0] > 0 ? x[1] + x[2] : 0; });
    else if (part == NULL)
        each_of(n, two, din,
                [kind, slope](const float(&x)[2]) { return slope_times(kind, slope, x[0], x[1]); });
    else
        each_of(n, three, din,
                [kind, slope](const float(&x)[3]) { return slope_times(kind, slope, x[0], x[1] + x[2]); });
}

/* Word e % 4 of block (e / 4, layer, step) decides element e, as in nets/layers/dropout.c. For values in
 * [C][H][W] order: a thread handles the four elements of a block. */
VALUE_KERNEL(k_dropout)(struct cnn_cuda_dropout p, const struct cnn_cuda_step *s, const VALUE *in, VALUE *out)
{
    const uint64_t first = s->first_image * p.c * p.places; /* elements of the images before */
    EACH(q, (first + p.n + 3) / 4 - first / 4)
    {
        uint64_t block = first / 4 + q;
        uint32_t v[4] = {(uint32_t)block, p.layer, (uint32_t)s->draw_step, (uint32_t)(s->draw_step >> 32)};
        philox(v, s->dropout_key[0], s->dropout_key[1]);
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t i = block * 4 + k - first; /* before the first: larger than all */
            if (i < p.n)
                store(out[i], v[k] >= p.dropped_below ? number(in[i]) * p.scale : 0);
        }
    }
}

/* The same for values in another order: a thread draws a whole block for its element. */
VALUE_KERNEL(k_dropout_planes)
(struct cnn_cuda_dropout p, const struct cnn_cuda_step *s, const VALUE *in, VALUE *out)
{
    EACH(i, p.n)
    {
        uint64_t image = s->first_image + i / p.c / p.places;
        uint64_t e = (image * p.c + i % p.c) * p.places + i / p.c % p.places;
        uint32_t v[4] = {(uint32_t)(e / 4), p.layer, (uint32_t)s->draw_step, (uint32_t)(s->draw_step >> 32)};
        philox(v, s->dropout_key[0], s->dropout_key[1]);
        uint32_t low = e & 1 ? v[1] : v[0], high = e & 1 ? v[3] : v[2]; /* v[e % 4], in registers */
        store(out[i], (e & 2 ? high : low) >= p.dropped_below ? number(in[i]) * p.scale : 0);
    }
}

/* ---- pools and LRN: see groups.cuh. */

VALUE_KERNEL(k_maxpool)
(struct cnn_cuda_share s, struct cnn_cuda_window w, const VALUE *in, VALUE *out, uint16_t *best)
{
    if (s.per == GROUP)
        maxpool<GROUP>(s, w, in, out, best);
    else
        maxpool<1>(s, w, in, out, best);
}

VALUE_KERNEL(k_maxpool_back)
(struct cnn_cuda_share s, struct cnn_cuda_window w, const VALUE *dout, const uint16_t *best, VALUE *din)
{
    if (s.per == GROUP)
        maxpool_back<GROUP>(s, w, dout, best, din);
    else
        maxpool_back<1>(s, w, dout, best, din);
}

VALUE_KERNEL(k_avgpool)(struct cnn_cuda_share s, struct cnn_cuda_window w, const VALUE *in, VALUE *out)
{
    if (s.per == GROUP)
        avgpool<GROUP>(s, w, in, out);
    else
        avgpool<1>(s, w, in, out);
}

VALUE_KERNEL(k_avgpool_back)(struct cnn_cuda_share s, struct cnn_cuda_window w, const VALUE *dout, VALUE *din)
{
    if (s.per == GROUP)
        avgpool_back<GROUP>(s, w, dout, din);
    else
        avgpool_back<1>(s, w, dout, din);
}

VALUE_KERNEL(k_lrn)(uint32_t per, struct cnn_cuda_lrn p, const VALUE *in, float *norm, VALUE *out)
{
    if (per == GROUP)
        lrn<GROUP>(p, in, norm, out);
    else
        lrn_of_any(p, in, norm, out);
}

VALUE_KERNEL(k_lrn_back)
(uint32_t per, struct cnn_cuda_lrn p, const VALUE *in, const float *norm, const VALUE *dout, VALUE *din)
{
    if (per == GROUP)
        lrn_back<GROUP>(p, in, norm, dout, din);
    else
        lrn_of_any_back(p, in, norm, dout, din);
}

#undef GROUP

/* ---- sums over a channel, and batch norm: see norm.cuh. */

/* out [c]: db */
VALUE_KERNEL(k_sums)(uint64_t rows, uint32_t c, const VALUE *a, struct cnn_cuda_sums m, float *out)
{
    __shared__ double s[CNN_CUDA_SUMS(VALUE)];
    sum_channels<SUMS_OF_VALUES, VALUE, VALUE>(rows, c, a, NULL, NULL, norm_of<WIDE<VALUE>>{}, false, s,
                                               m.part);
    if (comes_last(m.ended))
        end_sums<VALUE>(c, m.part, s, out);
}

/* The gradient of a ReLU, and db of what is before it. */
VALUE_KERNEL(k_sums_behind_relu)
(uint64_t rows, uint32_t c, const VALUE *relu, const VALUE *dout, struct cnn_cuda_sums m, VALUE *din,
 float *out)
{
    __shared__ double s[CNN_CUDA_SUMS(VALUE)];
    sum_channels<SUMS_OF_KEPT, VALUE, VALUE>(rows, c, dout, relu, din, norm_of<WIDE<VALUE>>{}, false, s,
                                             m.part);
    if (comes_last(m.ended))
        end_sums<VALUE>(c, m.part, s, out);
}

/* db of what is before a ReLU and a pool: each window's gradient goes to one place, or nowhere. */
VALUE_KERNEL(k_sums_behind_pool)
(uint64_t rows, uint32_t c, const uint16_t *best, const VALUE *dout, struct cnn_cuda_sums m, float *out)
{
    __shared__ double s[CNN_CUDA_SUMS(VALUE)];
    sum_channels<SUMS_OF_KEPT, VALUE, uint16_t>(rows, c, dout, best, NULL, norm_of<WIDE<VALUE>>{}, false, s,
                                                m.part);
    if (comes_last(m.ended))
        end_sums<VALUE>(c, m.part, s, out);
}

VALUE_KERNEL(k_moments)
(struct cnn_cuda_norm p, const VALUE *a, const float *scale, const float *shift, struct cnn_cuda_sums m,
 double *stats, float *used)
{
    __shared__ double s[CNN_CUDA_SUMS(VALUE)];
    norm_of<WIDE<VALUE>> norm = {};
    if (wide_channel<VALUE>() < p.c) {
        const auto first = read_wide<false, WIDE<VALUE>>(a, wide_channel<VALUE>(), p.c);
        for (uint32_t k = 0; k < WIDE<VALUE>; k++)
            norm.mean[k] = number(first.v[k]);
    }
    sum_channels<SUMS_OF_SQUARES, VALUE, VALUE>(p.rows, p.c, a, NULL, NULL, norm, false, s, m.part);
    if (comes_last(m.ended))
        end_moments<VALUE>(p, m.part, scale, shift, s, stats, used);
}

/* Of the output's gradient, and of it times the input minus its mean. */
VALUE_KERNEL(k_products)
(struct cnn_cuda_norm p, const float *used, const float *scale, const VALUE *in, const VALUE *dout,
 struct cnn_cuda_sums m, float *dscale, float *dshift, float *k)
{
    __shared__ double s[CNN_CUDA_SUMS(VALUE)];
    const norm_of<WIDE<VALUE>> norm = read_norm<WIDE<VALUE>>(p.c, wide_channel<VALUE>(), used);
    sum_channels<SUMS_OF_PRODUCTS, VALUE, VALUE>(p.rows, p.c, dout, in, NULL, norm, p.has_relu, s, m.part);
    if (comes_last(m.ended))
        end_products<VALUE>(p, m.part, used, scale, s, dscale, dshift, k);
}

VALUE_KERNEL(k_norm)
(struct cnn_cuda_norm p, const float *used, const VALUE *in, const VALUE *added, VALUE *out)
{
    if (p.is_grouped)
        normalize<WIDE<VALUE>, VALUE>(p, used, in, added, out);
    else
        normalize<1, VALUE>(p, used, in, added, out);
}

VALUE_KERNEL(k_norm_back)
(struct cnn_cuda_norm p, const float *used, const float *k, const VALUE *in, const VALUE *dout, VALUE *din)
{
    if (p.is_grouped)
        normalize_back<WIDE<VALUE>, VALUE>(p, used, k, in, dout, din);
    else
        normalize_back<1, VALUE>(p, used, k, in, dout, din);
}

/* ---- convolutions that cuDNN does not support: plain loops, one thread per value. Weights
 * [out][row][column][in of the group]. */

VALUE_KERNEL(k_conv)(uint64_t n, struct cnn_cuda_window w, const VALUE *in, const VALUE *weight, VALUE *out)
{
    EACH(i, n)
    {
        struct place o = place_of(&w.out, i);
        uint32_t deep = w.in.c / w.groups, c0 = o.c / (w.out.c / w.groups) * deep;
        float sum = 0;
        for (int32_t ky = 0; ky < w.kernel[0]; ky++)
            for (int32_t kx = 0; kx < w.kernel[1]; kx++) {
                int32_t y = o.y * w.stride[0] + ky * w.dilation[0] - w.pad[0];
                int32_t x = o.x * w.stride[1] + kx * w.dilation[1] - w.pad[1];
                if (y < 0 || x < 0 || y >= (int32_t)w.in.h || x >= (int32_t)w.in.w)
                    continue;
                const VALUE *v = in + index_of(&w.in, o.image, y, x, c0);
                const VALUE *k = weight + (((uint64_t)o.c * w.kernel[0] + ky) * w.kernel[1] + kx) * deep;
                for (uint32_t c = 0; c < deep; c++)
                    sum += number(v[c]) * number(k[c]);
            }
        store(out[i], sum);
    }
}

VALUE_KERNEL(k_conv_back_data)
(uint64_t n, struct cnn_cuda_window w, const VALUE *weight, const VALUE *dout, VALUE *din)
{
    EACH(i, n)
    {
        struct place p = place_of(&w.in, i);
        uint32_t deep = w.in.c / w.groups, wide = w.out.c / w.groups, group = p.c / deep;
        float sum = 0;
        for (int32_t ky = 0; ky < w.kernel[0]; ky++)
            for (int32_t kx = 0; kx < w.kernel[1]; kx++) {
                int32_t y = p.y + w.pad[0] - ky * w.dilation[0], x = p.x + w.pad[1] - kx * w.dilation[1];
                if (y < 0 || x < 0 || y % w.stride[0] != 0 || x % w.stride[1] != 0)
                    continue;
                y /= w.stride[0];
                x /= w.stride[1];
                if (y >= (int32_t)w.out.h || x >= (int32_t)w.out.w)
                    continue;
                for (uint32_t o = group * wide; o < (group + 1) * wide; o++)
                    sum += number(dout[index_of(&w.out, p.image, y, x, o)]) *
                           number(weight[(((uint64_t)o * w.kernel[0] + ky) * w.kernel[1] + kx) * deep +
                                         p.c % deep]);
            }
        store(din[i], sum);
    }
}

VALUE_KERNEL(k_conv_back_weights)
(uint64_t n, struct cnn_cuda_window w, const VALUE *in, const VALUE *dout, VALUE *dweight)
{
    EACH(i, n)
    {
        uint32_t deep = w.in.c / w.groups, c = (uint32_t)(i % deep);
        int32_t kx = (int32_t)(i / deep % w.kernel[1]), ky = (int32_t)(i / deep / w.kernel[1] % w.kernel[0]);
        uint32_t o = (uint32_t)(i / deep / w.kernel[1] / w.kernel[0]), c0 = o / (w.out.c / w.groups) * deep;
        double sum = 0;
        for (uint32_t image = 0; image < w.in.n; image++)
            for (int32_t oy = 0; oy < (int32_t)w.out.h; oy++)
                for (int32_t ox = 0; ox < (int32_t)w.out.w; ox++) {
                    int32_t y = oy * w.stride[0] + ky * w.dilation[0] - w.pad[0];
                    int32_t x = ox * w.stride[1] + kx * w.dilation[1] - w.pad[1];
                    if (y >= 0 && x >= 0 && y < (int32_t)w.in.h && x < (int32_t)w.in.w)
                        sum += (double)number(in[index_of(&w.in, image, y, x, c0 + c)]) *
                               (double)number(dout[index_of(&w.out, image, oy, ox, o)]);
                }
        store(dweight[i], (float)sum);
    }
}
