#include "nets/worker/job/progress.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#define BAR_INTERVAL_S  0.25
#define LINE_INTERVAL_S 5.0

void cnn_meter_start(struct cnn_meter *m, double now)
{
    *m = (struct cnn_meter){.since = now};
}

void cnn_meter_add(struct cnn_meter *m, double loss, uint32_t correct, uint32_t images)
{
    cnn_meter_add_steps(m, loss, 1, correct, images);
}

void cnn_meter_add_steps(struct cnn_meter *m, double loss_sum, uint64_t steps, uint64_t correct,
                         uint64_t images)
{
    m->loss_sum += loss_sum;
    m->steps += steps;
    m->images += images;
    m->correct += correct;
}

double cnn_meter_loss(const struct cnn_meter *m)
{
    return m->steps > 0 ? m->loss_sum / (double)m->steps : NAN;
}

double cnn_meter_accuracy(const struct cnn_meter *m)
{
    return m->images > 0 ? (double)m->correct / (double)m->images : NAN;
}

double cnn_meter_rate(const struct cnn_meter *m, double now)
{
    return now > m->since ? (double)m->images / (now - m->since) : 0;
}

void cnn_progress_init(struct cnn_progress *p, FILE *out, bool json, double now)
{
    bool terminal = !json && isatty(fileno(out));
    *p = (struct cnn_progress){.out = out,
                               .terminal = terminal,
                               .json = json,
                               .interval_s = terminal ? BAR_INTERVAL_S : LINE_INTERVAL_S,
                               .last = now};
}

bool cnn_progress_is_due(const struct cnn_progress *p, double now)
{
    return now - p->last >= p->interval_s;
}

void cnn_json_number(FILE *out, const char *key, double v)
{
    if (isfinite(v))
        fprintf(out, ",\"%s\":%.9g", key, v);
    else
        fprintf(out, ",\"%s\":null", key);
}

static void show_json(FILE *out, const struct cnn_progress_state *s, const char *event)
{
    fprintf(out, "{\"event\":\"%s\",\"rank\":%d,\"step\":%" PRIu64 ",\"center_version\":%" PRIu64, event,
            s->rank, s->step, s->center_version);
    cnn_json_number(out, "epoch", s->epoch);
    cnn_json_number(out, "loss", s->loss);
    cnn_json_number(out, "accuracy", s->accuracy);
    cnn_json_number(out, "images_per_second", s->rate);
    cnn_json_number(out, "seconds", s->time.wall);
    cnn_json_number(out, "data_seconds", s->time.data);
    cnn_json_number(out, "compute_seconds", s->time.compute);
    cnn_json_number(out, "update_seconds", s->time.update);
    cnn_json_number(out, "exchange_seconds", s->time.exchange);
    fputs("}\n", out);
}

static void show_split(FILE *out, const struct cnn_split_time *t)
{
    double percent = t->wall > 0 ? 100 / t->wall : 0;
    fprintf(out, "data %.0f%% compute %.0f%% update %.0f%% exchange %.0f%%", t->data * percent,
            t->compute * percent, t->update * percent, t->exchange * percent);
}

/* Ends with a carriage return, so that other output starts in the first column. */
static void show_bar(FILE *out, const struct cnn_progress_state *s)
{
    enum { WIDTH = 20 };
    int full = s->last_step > 0 ? (int)((double)s->step / (double)s->last_step * WIDTH) : 0;
    fputs("[", out);
    for (int i = 0; i < WIDTH; i++)
        fputc(i < full ? '#' : '.', out);
    fprintf(out,
            "] %" PRIu64 "/%" PRIu64 " epoch %.2f loss %.4f acc %.4f %.0f img/s center %" PRIu64 "\033[K\r",
            s->step, s->last_step, s->epoch, s->loss, s->accuracy, s->rate, s->center_version);
}

void cnn_progress_show(struct cnn_progress *p, const struct cnn_progress_state *s, double now)
{
    p->last = now;
    if (p->json) {
        show_json(p->out, s, "progress");
    } else if (p->terminal) {
        show_bar(p->out, s);
    } else {
        fprintf(p->out,
                "rank %d step %" PRIu64 "/%" PRIu64
                " epoch %.2f loss %.4f acc %.4f %.0f img/s center %" PRIu64 ", ",
                s->rank, s->step, s->last_step, s->epoch, s->loss, s->accuracy, s->rate, s->center_version);
        show_split(p->out, &s->time);
        fputc('\n', p->out);
    }
    fflush(p->out);
}

void cnn_progress_end(struct cnn_progress *p, const struct cnn_progress_state *s, const char *how)
{
    if (p->json) {
        show_json(p->out, s, how);
    } else {
        if (p->terminal)
            fputs("\033[K", p->out);
        fprintf(p->out,
                "rank %d %s: %" PRIu64 " steps in %.1f s, loss %.4f, acc %.4f, %.0f img/s, center %" PRIu64
                ", ",
                s->rank, how, s->step, s->time.wall, s->loss, s->accuracy, s->rate, s->center_version);
        show_split(p->out, &s->time);
        fputc('\n', p->out);
    }
    fflush(p->out);
}
