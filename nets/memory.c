/* memory.c: lays out the arena of a net. */
#include "nets/memory.h"

#include <errno.h>
#include <stdlib.h>

#define NO_SPACE SIZE_MAX

/* A range of the arena and the time during which it is used. */
struct space {
    size_t first, last; /* moments */
    size_t bytes, at;
    enum cnn_reads back_reads; /* of values: what the backward pass reads */
};

struct planner {
    const struct cnn_plan *plan;
    const struct cnn_needs *needs;
    size_t batch, value_bytes;
    struct space *spaces;
    size_t n_spaces;
    size_t *value_in, *gradient_in; /* [n_values]: spaces */
    struct layer_spaces {
        size_t kept, work, back_work, part[CNN_MAX_INPUTS];
        size_t last_part; /* of its output's gradient, if it adds it itself */
        bool adds[CNN_MAX_INPUTS], leaves[CNN_MAX_INPUTS]; /* its part; to the layer that adds it itself */
    } * layers;
};

static size_t forward_moment(size_t layer)
{
    return layer + 1;
}

static size_t back_moment(const struct planner *p, size_t layer)
{
    return 2 * p->plan->n_layers - layer;
}

static size_t new_space(struct planner *p, size_t bytes, size_t first, size_t last)
{
    if (bytes == 0)
        return NO_SPACE;
    bytes = (bytes + CNN_ALIGN - 1) / CNN_ALIGN * CNN_ALIGN;
    p->spaces[p->n_spaces] = (struct space){.first = first, .last = last, .bytes = bytes};
    return p->n_spaces++;
}

static void live_until(struct space *s, size_t moment)
{
    if (moment > s->last)
        s->last = moment;
}

static size_t value_bytes(const struct planner *p, size_t value)
{
    struct cnn_shape s = value > 0 ? p->plan->layers[value - 1].out : cnn_image_shape(p->plan);
    return cnn_shape_count(s) * p->batch * p->value_bytes;
}

/* Whether the layer may overwrite its input: neither another reader nor a backward pass needs it. */
static bool may_overwrite(const struct planner *p, size_t layer)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    const struct cnn_needs *n = &p->needs[layer];
    size_t value = l->inputs[0].value;

    if (!n->can_overwrite || value == 0 || p->plan->n_readers[value] != 1 ||
        (cnn_goes_back(l) && n->back_reads_in != CNN_READS_NOTHING))
        return false;
    enum cnn_reads missed = p->spaces[p->value_in[value]].back_reads;
    return missed == CNN_READS_NOTHING || (missed == CNN_READS_SIGN && n->keeps_sign);
}

static size_t output_bytes(const struct planner *p, size_t layer)
{
    size_t each = p->needs[layer].out_bytes > 0 ? p->needs[layer].out_bytes : p->value_bytes;
    return cnn_shape_count(p->plan->layers[layer].out) * p->batch * each;
}

/* Creates the space of a layer's output, from its forward moment. */
static void place_output(struct planner *p, size_t layer)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    size_t now = forward_moment(layer);
    size_t in = p->needs[layer].passes_value || may_overwrite(p, layer)
                    ? p->value_in[l->inputs[0].value]
                    : new_space(p, output_bytes(p, layer), now, now);
    struct space *s = &p->spaces[in];

    p->value_in[layer + 1] = in;
    live_until(s, now);
    if (!cnn_goes_back(l) || p->needs[layer].back_reads_out == CNN_READS_NOTHING)
        return;
    live_until(s, back_moment(p, layer));
    if (p->needs[layer].back_reads_out > s->back_reads)
        s->back_reads = p->needs[layer].back_reads_out;
}

static void read_inputs(struct planner *p, size_t layer)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    bool reads_back = cnn_is_loss(l) || (cnn_goes_back(l) && p->needs[layer].back_reads_in);

    for (uint32_t k = 0; k < l->n_inputs; k++) {
        struct space *s = &p->spaces[p->value_in[l->inputs[k].value]];
        live_until(s, reads_back ? back_moment(p, layer) : forward_moment(layer));
        if (reads_back)
            s->back_reads = CNN_READS_VALUE;
    }
}

static void plan_forward(struct planner *p)
{
    p->value_in[0] = new_space(p, value_bytes(p, 0), 0, 0);
    for (size_t i = 0; i < p->plan->n_layers; i++) {
        const struct cnn_layer *l = &p->plan->layers[i];
        size_t now = forward_moment(i), end = cnn_goes_back(l) ? back_moment(p, i) : now;
        p->layers[i].kept = p->layers[i].work = NO_SPACE;
        read_inputs(p, i);
        if (cnn_is_loss(l)) {
            p->value_in[i + 1] = NO_SPACE;
            continue;
        }
        place_output(p, i);
        p->layers[i].kept = new_space(p, p->needs[i].kept_bytes, now, end);
        p->layers[i].work = new_space(p, p->needs[i].work_bytes, now, now);
    }
}

/* Whether a layer that runs backward later reads the space as its output's gradient. */
static bool is_awaited(const struct planner *p, size_t space, size_t layer)
{
    for (size_t v = 1; v <= layer; v++)
        if (p->gradient_in[v] == space)
            return true;
    return false;
}

/* The last layer but `but` that reads a value; 0: there is none (layer 0 reads the images alone). */
static size_t last_reader(const struct planner *p, size_t value, size_t but)
{
    for (size_t i = p->plan->n_layers; i-- > value;)
        for (uint32_t k = 0; k < p->plan->layers[i].n_inputs && i != but; k++)
            if (p->plan->layers[i].inputs[k].value == value)
                return i;
    return 0;
}

/* Whether inputs a and b of a layer may both have its output's gradient in one space: parts are added to the
 * gradient of at most one of them, after the layer that wrote the other has read it. */
static bool may_share(const struct planner *p, size_t layer, size_t a, size_t b)
{
    const bool more_of_a = p->plan->n_readers[a] > 1, more_of_b = p->plan->n_readers[b] > 1;

    if (more_of_a && more_of_b)
        return false;
    return (!more_of_a || last_reader(p, a, layer) + 1 < b) &&
           (!more_of_b || last_reader(p, b, layer) + 1 < a);
}

/* Whether the gradient of the input can share the memory of the output's gradient. */
static bool shares_gradient(const struct planner *p, size_t layer, uint32_t k)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    const struct cnn_needs *n = &p->needs[layer];
    const size_t out = cnn_is_loss(l) ? NO_SPACE : p->gradient_in[layer + 1];

    if (cnn_is_loss(l) || is_awaited(p, out, n->shares_gradient ? 0 : layer))
        return false;
    if (!n->shares_gradient)
        return k == 0 && (n->passes_gradient || n->can_overwrite_back) &&
               p->plan->n_readers[l->inputs[0].value] == 1;
    for (size_t v = 1; v <= layer; v++)
        if (p->gradient_in[v] == out && !may_share(p, layer, v, l->inputs[k].value))
            return false;
    return true;
}

/* Whether the layer is the last that adds a part to the value's gradient, and the layer that wrote the value
 * adds it itself. */
static bool leaves_part(const struct planner *p, size_t layer, size_t value)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    uint32_t times = 0;

    for (uint32_t k = 0; k < l->n_inputs; k++)
        times += l->inputs[k].value == value;
    if (value == 0 || times > 1 || cnn_is_loss(l) || !p->needs[value - 1].adds_part ||
        !cnn_goes_back(&p->plan->layers[value - 1]))
        return false;
    for (size_t i = value; i < layer; i++)
        for (uint32_t k = 0; k < p->plan->layers[i].n_inputs; k++)
            if (p->plan->layers[i].inputs[k].value == value)
                return false;
    return true;
}

/* A part of the gradient of input k, which another layer has written. */
static void place_part(struct planner *p, size_t layer, uint32_t k)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    struct layer_spaces *s = &p->layers[layer];
    const size_t now = back_moment(p, layer), value = l->inputs[k].value;

    s->adds[k] = true;
    s->part[k] = cnn_is_loss(l) ? p->gradient_in[value] : new_space(p, value_bytes(p, value), now, now);
    s->leaves[k] = leaves_part(p, layer, value);
    if (!s->leaves[k])
        return;
    live_until(&p->spaces[s->part[k]], back_moment(p, value - 1));
    p->layers[value - 1].last_part = s->part[k];
}

static void plan_back_layer(struct planner *p, size_t layer)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    struct layer_spaces *s = &p->layers[layer];
    size_t now = back_moment(p, layer), out = p->gradient_in[layer + 1];

    for (uint32_t k = 0; k < l->n_inputs; k++) {
        size_t value = l->inputs[k].value;
        s->part[k] = NO_SPACE;
        if (!l->inputs[k].wants_grad)
            continue;
        if (p->gradient_in[value] != NO_SPACE) {
            place_part(p, layer, k);
            continue;
        }
        p->gradient_in[value] =
            shares_gradient(p, layer, k) ? out : new_space(p, value_bytes(p, value), now, now);
        live_until(&p->spaces[p->gradient_in[value]], back_moment(p, value - 1));
    }
    s->back_work = cnn_is_loss(l) ? NO_SPACE : new_space(p, p->needs[layer].back_work_bytes, now, now);
}

static void plan_back(struct planner *p)
{
    for (size_t v = 0; v < p->plan->n_values; v++)
        p->gradient_in[v] = NO_SPACE;
    for (size_t i = p->plan->n_layers; i-- > 0;) {
        p->layers[i].back_work = p->layers[i].last_part = NO_SPACE;
        for (uint32_t k = 0; k < CNN_MAX_INPUTS; k++)
            p->layers[i].part[k] = NO_SPACE;
    }
    for (size_t i = p->plan->n_layers; i-- > 0;) {
        if (cnn_is_loss(&p->plan->layers[i]) || cnn_goes_back(&p->plan->layers[i]))
            plan_back_layer(p, i);
    }
    /* A layer that passes its gradient on must keep its data until that gradient is read. */
    for (size_t i = 0; i < p->plan->n_layers; i++)
        if (p->needs[i].passes_gradient && p->layers[i].kept != NO_SPACE && p->gradient_in[i + 1] != NO_SPACE)
            live_until(&p->spaces[p->layers[i].kept], p->spaces[p->gradient_in[i + 1]].last);
}

static int larger_first(const void *a, const void *b)
{
    const struct space *x = *(const struct space *const *)a, *y = *(const struct space *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x > y) - (x < y); /* the order of creation: the plan is the same on every machine */
}

/* Of those that are used equally long, the larger first. */
static int longest_used_first(const void *a, const void *b)
{
    const struct space *x = *(const struct space *const *)a, *y = *(const struct space *const *)b;
    size_t x_lasts = x->last - x->first, y_lasts = y->last - y->first;

    return x_lasts != y_lasts ? (x_lasts < y_lasts ? 1 : -1) : larger_first(a, b);
}

static int lower_first(const void *a, const void *b)
{
    const struct space *x = *(const struct space *const *)a, *y = *(const struct space *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The start of the smallest gap of at least `bytes` between the spaces taken [n], sorted by offset; their end
 * if there is none. */
static size_t best_fit(struct space *const *taken, size_t n, size_t bytes)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        if (taken[i]->at > end && taken[i]->at - end >= bytes && taken[i]->at - end < best_gap) {
            best = end;
            best_gap = taken[i]->at - end;
        }
        if (taken[i]->at + taken[i]->bytes > end)
            end = taken[i]->at + taken[i]->bytes;
    }
    return best != SIZE_MAX ? best : end;
}

/* order, taken: scratch [n_spaces]. Returns the end of the last space. */
static size_t place_in_order(struct planner *p, int (*first)(const void *, const void *),
                             struct space **order, struct space **taken)
{
    size_t end = 0;

    for (size_t i = 0; i < p->n_spaces; i++)
        order[i] = &p->spaces[i];
    qsort(order, p->n_spaces, sizeof *order, first);
    for (size_t i = 0; i < p->n_spaces; i++) {
        size_t n = 0;
        for (size_t k = 0; k < i; k++)
            if (order[k]->first <= order[i]->last && order[i]->first <= order[k]->last)
                taken[n++] = order[k];
        qsort(taken, n, sizeof *taken, lower_first);
        order[i]->at = best_fit(taken, n, order[i]->bytes);
        if (order[i]->at + order[i]->bytes > end)
            end = order[i]->at + order[i]->bytes;
    }
    return end;
}

/* In the order that needs less. */
static size_t place_all(struct planner *p, struct space **order, struct space **taken)
{
    size_t by_size = place_in_order(p, larger_first, order, taken);
    size_t by_use = place_in_order(p, longest_used_first, order, taken);

    return by_use <= by_size ? by_use : place_in_order(p, larger_first, order, taken);
}

static size_t most_alive(const struct planner *p)
{
    size_t most = 0;

    for (size_t moment = 0; moment <= 2 * p->plan->n_layers; moment++) {
        size_t sum = 0;
        for (size_t i = 0; i < p->n_spaces; i++)
            if (p->spaces[i].first <= moment && moment <= p->spaces[i].last)
                sum += p->spaces[i].bytes;
        most = sum > most ? sum : most;
    }
    return most;
}

static size_t at(const struct planner *p, size_t space)
{
    return space == NO_SPACE ? CNN_NOWHERE : p->spaces[space].at;
}

static void write_layer(const struct planner *p, size_t layer, struct cnn_layer_places *out)
{
    const struct cnn_layer *l = &p->plan->layers[layer];
    const struct layer_spaces *s = &p->layers[layer];

    *out = (struct cnn_layer_places){at(p, s->kept),     at(p, s->work), at(p, s->back_work), {0}, {0},
                                     at(p, s->last_part)};
    for (uint32_t k = 0; k < CNN_MAX_INPUTS; k++) {
        bool wanted = k < l->n_inputs && l->inputs[k].wants_grad;
        size_t sum = wanted ? at(p, p->gradient_in[l->inputs[k].value]) : CNN_NOWHERE;
        out->din_at[k] = wanted && s->adds[k] ? at(p, s->part[k]) : sum;
        out->sum_at[k] = wanted && s->adds[k] && !s->leaves[k] ? sum : CNN_NOWHERE;
    }
}

static int solve(struct planner *p, struct cnn_memory *m)
{
    const struct cnn_plan *plan = p->plan;
    struct space **order = calloc(2 * p->n_spaces, sizeof *order);

    if (order == NULL)
        return -ENOMEM;
    m->arena_bytes = place_all(p, order, order + p->n_spaces) + CNN_ALIGN;
    m->live_bytes = most_alive(p);
    for (size_t v = 0; v < plan->n_values; v++) {
        m->value_at[v] = at(p, p->value_in[v]);
        m->gradient_at[v] = at(p, p->gradient_in[v]);
    }
    for (size_t i = 0; i < plan->n_layers; i++)
        write_layer(p, i, &m->layers[i]);
    free(order);
    return 0;
}

int cnn_memory_create(const struct cnn_plan *plan, const struct cnn_needs *needs, uint32_t batch,
                      size_t bytes_each, struct cnn_memory **out, struct ps_error *err)
{
    size_t n_values = plan->n_values, n_layers = plan->n_layers;
    struct planner p = {.plan = plan, .needs = needs, .batch = batch, .value_bytes = bytes_each};
    struct cnn_memory *m = calloc(1, sizeof *m);
    int rc = -ENOMEM;

    /* A value and its gradient; a layer's kept data and workspaces; a part for each input. */
    p.spaces = calloc(2 * n_values + (3 + CNN_MAX_INPUTS) * n_layers, sizeof *p.spaces);
    p.value_in = calloc(2 * n_values, sizeof *p.value_in);
    p.layers = calloc(n_layers, sizeof *p.layers);
    if (m != NULL) {
        m->value_at = calloc(2 * n_values, sizeof *m->value_at);
        m->layers = calloc(n_layers, sizeof *m->layers);
    }
    if (m != NULL && m->value_at != NULL && m->layers != NULL && p.spaces != NULL && p.value_in != NULL &&
        p.layers != NULL) {
        p.gradient_in = p.value_in + n_values;
        m->gradient_at = m->value_at + n_values;
        plan_forward(&p);
        plan_back(&p);
        rc = solve(&p, m);
    }
    free(p.spaces);
    free(p.value_in);
    free(p.layers);
    if (rc < 0) {
        cnn_memory_destroy(m);
        return ps_fail(err, rc, "no memory for the memory plan of model '%s'", plan->model->name);
    }
    *out = m;
    return 0;
}

void cnn_memory_destroy(struct cnn_memory *m)
{
    if (m == NULL)
        return;
    free(m->value_at);
    free(m->layers);
    free(m);
}
