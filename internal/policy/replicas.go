package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// renewPause is how often a replica renews its report. Ten replicas with both plugins
	// make one write in three seconds.
	renewPause = time.Minute
	// goneAfter is when a replica that does not renew its report is considered gone: two
	// renewals may fail.
	goneAfter = 3 * renewPause
	// reportPause is the least time between two reports. kubectl apply writes some 20
	// policies in a second, and all of them are one report.
	reportPause = time.Second
	// missingNamed is how many replicas a condition names.
	missingNamed = 3
	// defaultHost is the name of a replica whose host name is not valid in the name of an object.
	defaultHost = "fastadmit"
)

// A report is the status of a PolicyReplica: what a replica says about the policies of one
// plugin. It is one object for all policies, so that a rollout writes once for each pod and
// not once for each pod and policy.
type report struct {
	Plugin    string           `json:"plugin"`
	Host      string           `json:"host"` // in a cluster, the name of the pod
	RenewTime metav1.Time      `json:"renewTime"`
	Policies  []reportedPolicy `json:"policies"`
}

// A reportedPolicy is a policy that a replica enforces.
type reportedPolicy struct {
	Name               string `json:"name"`
	ObservedGeneration int64  `json:"observedGeneration"`
	// Revision is a digest of the policy and its bindings; see revisionOf.
	Revision string `json:"revision"`
}

// replicas writes the report of this replica and reads those of all.
type replicas struct {
	objects  *cluster.Objects[*cluster.JSON]
	plugin   string
	host     string
	enforced func() []reportedPolicy // by this replica

	// The last report of this replica, which belongs to run.
	policies []reportedPolicy
	renewed  time.Time
	version  string // of the object

	mu    sync.Mutex
	name  string            // of the object of this replica, "" if there is none
	heard map[string]*heard // by the name of the object
}

// heard is the last report of a replica.
type heard struct {
	name, version string // of the object
	at            time.Time
	plugin, host  string
	revisions     map[string]string // by the name of the policy
}

// reports are the reports of the replicas that are not gone.
type reports struct {
	live  []*heard // sorted by name
	known bool     // this replica is one of them
	first bool     // this replica is the first of them, or not one of them
}

func newReplicas(objects *cluster.Objects[*cluster.JSON], plugin string, enforced func() []reportedPolicy) *replicas {
	return &replicas{objects: objects, plugin: plugin, host: hostOf(os.Hostname()), enforced: enforced}
}

// hostOf returns the name of a host in reports.
func hostOf(name string, err error) string {
	name = strings.ToLower(name)
	if err != nil || len(validation.IsDNS1123Subdomain(nameOf(name))) > 0 {
		return defaultHost
	}
	return name
}

// nameOf returns a name for the report of a replica. It is random, because a restarted container
// has the host name of the container before.
func nameOf(host string) string { return host + "-" + rand.String(5) }

// run reports the policies that this replica enforces after each refresh, until ctx ends. It
// also removes the reports of replicas that are gone. At the end it removes its own.
func (r *replicas) run(ctx context.Context, refreshed wake.Signal) {
	defer r.leave(ctx)
	pause := time.Duration(math.MaxInt64) // before the first refresh, the replica enforces no policy yet
	for refreshed.Wait(ctx, pause, 0) {
		pause = renewPause
		if err := r.report(ctx); err != nil { // the requests are counted by result
			pause = retryPause
		}
		for _, name := range r.gone(time.Now()) {
			_ = r.objects.Delete(ctx, "", name) // another replica may have deleted it
		}
		wake.Sleep(ctx, reportPause)
	}
}

// report writes the report of this replica, if it changed or must be renewed.
func (r *replicas) report(ctx context.Context) error {
	policies := r.enforced()
	name := r.ownName()
	if name != "" && slices.Equal(policies, r.policies) && time.Since(r.renewed) < renewPause {
		return nil
	}
	if name == "" {
		name = nameOf(r.host)
		created, err := r.objects.Create(ctx, r.object(&metav1.ObjectMeta{Name: name}, nil))
		if err != nil {
			return err
		}
		r.version = created.GetResourceVersion()
		r.setName(name)
	}
	now := metav1.Now()
	written, err := r.objects.UpdateStatus(ctx, r.object(&metav1.ObjectMeta{Name: name, ResourceVersion: r.version}, &report{r.plugin, r.host, now, policies}))
	switch {
	case apierrors.IsNotFound(err):
		r.setName("") // other replicas considered this one gone
	case apierrors.IsConflict(err): // somebody labelled it
		if live, getErr := r.objects.GetLive(ctx, "", name); getErr == nil {
			r.version = live.GetResourceVersion()
		}
	}
	if err != nil {
		return err
	}
	r.version, r.policies, r.renewed = written.GetResourceVersion(), policies, now.Time
	return nil
}

// object returns a PolicyReplica.
func (r *replicas) object(metadata *metav1.ObjectMeta, says *report) *cluster.JSON {
	object := map[string]any{"metadata": metadata}
	object["apiVersion"], object["kind"] = cluster.PolicyReplicas.GroupVersionKind().ToAPIVersionAndKind()
	if says != nil {
		object["status"] = says
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // it is strings, numbers and times
	}
	made, err := cluster.NewJSON(text)
	if err != nil {
		panic(err)
	}
	return made
}

func (r *replicas) ownName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name
}

func (r *replicas) setName(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name = name
}

// leave removes the report of this replica at its end.
func (r *replicas) leave(ctx context.Context) {
	name := r.ownName()
	if name == "" {
		return
	}
	r.setName("")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryPause)
	defer cancel()
	_ = r.objects.Delete(ctx, "", name) // if this fails, other replicas delete it after goneAfter
}

// read returns the reports of the replicas with this plugin.
func (r *replicas) read(now time.Time) (all reports) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.heard
	r.heard = make(map[string]*heard)
	objects, err := r.objects.List("")
	if err != nil { // a report is too large: nobody but a replica may write one
		return all
	}
	for _, object := range objects {
		h := last[object.GetName()]
		if h == nil || h.version != object.GetResourceVersion() {
			h = newHeard(object, now)
		}
		r.heard[h.name] = h
		if h.plugin == r.plugin && !h.isGone(now) {
			all.live = append(all.live, h)
			all.known = all.known || h.name == r.name
		}
	}
	all.first = !all.known || all.live[0].name == r.name
	return all
}

// gone returns the names of the reports of replicas that are gone. It uses the times at which
// read found the renewals, because the clocks of other replicas may differ.
func (r *replicas) gone(now time.Time) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, h := range r.heard {
		if h.isGone(now) && name != r.name {
			names = append(names, name)
		}
	}
	return names
}

func (h *heard) isGone(now time.Time) bool { return now.Sub(h.at) >= goneAfter }

// newHeard reads a report. A report without a valid status has no plugin.
func newHeard(object *cluster.JSON, now time.Time) *heard {
	h := &heard{name: object.GetName(), version: object.GetResourceVersion(), at: now}
	var says struct {
		Status report `json:"status"`
	}
	if text, err := object.MarshalJSON(); err != nil || kjson.UnmarshalCaseSensitivePreserveInts(text, &says) != nil {
		return h
	}
	h.plugin, h.host = says.Status.Plugin, says.Status.Host
	h.revisions = make(map[string]string, len(says.Status.Policies))
	for i := range says.Status.Policies {
		h.revisions[says.Status.Policies[i].Name] = says.Status.Policies[i].Revision
	}
	return h
}

// enforced returns the condition whether all replicas enforce a revision of a policy. All
// replicas compute the same, because they use the reports alone.
func (all *reports) enforced(policy, revision string) (status metav1.ConditionStatus, reason, message string) {
	var missing []string
	for _, h := range all.live {
		if h.revisions[policy] != revision {
			missing = append(missing, h.host)
		}
	}
	if len(missing) == 0 {
		return metav1.ConditionTrue, "AllReplicas", "all replicas enforce it"
	}
	slices.Sort(missing)
	names := strings.Join(missing[:min(len(missing), missingNamed)], ", ")
	if more := len(missing) - missingNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return metav1.ConditionFalse, "Waiting", fmt.Sprintf("%d of %d replicas do not enforce it: %s", len(missing), len(all.live), names)
}
