/* Connects the folders: sets their hooks and the parts that they use. */
#include "server/psd.h"

static void command_remote(struct psd *d, const struct psd_lane *lane, const struct psd_lane_message *msg)
{
    psd_cluster_notify(&d->cluster, lane, msg);
}

static bool holds_back(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    return psd_cluster_holds_back(&d->cluster, peer, peer_bytes, m);
}

static void proved(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    psd_hello_proved(&d->control, peer, m);
}

static void proved_server(struct psd *d, const struct psd_peer *peer, const Ps__Enlist *m)
{
    psd_cluster_register(&d->cluster, peer, m);
}

static void welcome_all(struct psd *d)
{
    psd_hello_again(&d->control);
}

static void saved(struct psd *d)
{
    psd_follower_saved(&d->cluster);
}

static void save_others(struct psd *d, const Ps__Snapshot *snapshot, uint64_t round)
{
    psd_cluster_save(&d->cluster, snapshot, round);
}

static bool others_saved(const struct psd *d)
{
    return psd_cluster_has_saved(&d->cluster);
}

static bool others_unsaved(const struct psd *d)
{
    return psd_cluster_is_unsaved(&d->cluster);
}

static bool common(const struct psd *d, uint64_t *version)
{
    return psd_cluster_common(&d->cluster, version);
}

static int check_others(const struct psd *d, struct ps_error *err)
{
    return psd_cluster_check_here(&d->cluster, err);
}

static int try_others(struct psd *d, uint32_t generation, struct ps_error *err)
{
    return psd_cluster_try(&d->cluster, generation, err);
}

static void drop_others(struct psd *d)
{
    psd_cluster_drop(&d->cluster);
}

static void make_others(struct psd *d)
{
    psd_cluster_make(&d->cluster);
}

static bool is_complete(const struct psd *d)
{
    return psd_cluster_is_complete(&d->cluster);
}

static uint64_t newest_of_others(const struct psd *d)
{
    return psd_cluster_newest(&d->cluster);
}

static bool has_members(const struct psd *d)
{
    return psd_follower_has_members(&d->cluster);
}

static const struct psd_job_hooks job_hooks = {.welcome_all = welcome_all,
                                               .saved = saved,
                                               .save_others = save_others,
                                               .others_saved = others_saved,
                                               .others_unsaved = others_unsaved,
                                               .common = common,
                                               .check_others = check_others,
                                               .try_others = try_others,
                                               .drop_others = drop_others,
                                               .make_others = make_others,
                                               .is_complete = is_complete,
                                               .newest_of_others = newest_of_others,
                                               .has_members = has_members};

void psd_wire(struct psd *d)
{
    bool leads = psd_has_cluster(&d->cfg);
    d->lanes.psd = d->sender.psd = d->auth.psd = d->job.psd = d->cluster.psd = d;
    d->lanes.command_remote = leads ? command_remote : NULL;
    d->sender.holds_back = leads ? holds_back : NULL;
    d->auth.hooks = (struct psd_auth_hooks){.proved = proved, .proved_server = proved_server};
    d->job.hooks = job_hooks;
    d->job.cfg = d->cluster.cfg = d->control.cfg = d->status.cfg = &d->cfg;
    d->auth.cfg = &d->cfg;
    d->auth.loop = d->job.loop = d->cluster.loop = d->control.loop = d->status.loop = &d->loop;
    d->job.lanes = d->cluster.lanes = d->control.lanes = d->status.lanes = &d->lanes;
    d->sender.sessions = d->auth.sessions = &d->sessions;
    d->job.sessions = d->cluster.sessions = d->control.sessions = d->status.sessions = &d->sessions;
    d->auth.sender = d->job.sender = d->cluster.sender = d->control.sender = d->status.sender = &d->sender;
    d->job.auth = d->cluster.auth = d->control.auth = d->status.auth = &d->auth;
    d->cluster.job = d->control.job = d->status.job = &d->job;
    d->control.cluster = d->status.cluster = &d->cluster;
    d->status.control = &d->control;
}
