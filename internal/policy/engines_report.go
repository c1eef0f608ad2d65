package policy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// eventEvery is how often there is an Event about a document. kube-apiserver keeps Events for
	// an hour (--event-ttl).
	eventEvery = 50 * time.Minute
	// eventsMax is how many Events are made after a change, so that the API server has other work.
	eventsMax = 20
	// eventMessageMax is how long the message of an Event is, in bytes (k8s.io/kubernetes
	// pkg/apis/core/validation NoteLengthLimit).
	eventMessageMax = 1024
	// eventNameMax is how much of the name of a document is in that of its Event, in bytes: with a
	// dot and a digest, 253.
	eventNameMax = 236

	reasonNotEvaluated = "NotEvaluated"
)

// A foreignProblem says what of another engine's documents is not evaluated.
type foreignProblem struct {
	document *foreignDocument // nil for several
	text     string
}

// id identifies the problem for Events and the log.
func (p *foreignProblem) id() [sha256.Size]byte {
	if p.document == nil {
		return sha256.Sum256([]byte(p.text))
	}
	o := p.document.object
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %d %s", p.document.kind, o.GetNamespace(), o.GetName(), o.GetUID(), o.GetGeneration(), p.text))
}

// foreignReports are the reports of problems: a line of the log once, an Event of the document,
// which describe shows, and a metric.
type foreignReports struct {
	log    *slog.Logger
	events *cluster.Objects[*corev1.Event]
	plugin string

	mu       sync.Mutex
	problems []foreignProblem
	made     map[[sha256.Size]byte]time.Time // when the last Event was made, zero for not yet
	fault    string                          // why no Event could be made
}

func newForeignReports(plugin string, view *cluster.View) *foreignReports {
	r := &foreignReports{log: view.Log(), events: cluster.Events.In(view), plugin: plugin, made: make(map[[sha256.Size]byte]time.Time)}
	view.Metrics().UnregisterMetric(fmt.Sprintf(`fastadmit_policies_not_evaluated{plugin=%q}`, plugin)) // of the previous configuration
	view.Metrics().NewGauge(fmt.Sprintf(`fastadmit_policies_not_evaluated{plugin=%q}`, plugin), func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(len(r.problems))
	})
	return r
}

// use replaces the problems, and logs those that are new.
func (r *foreignReports) use(problems []foreignProblem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := make(map[[sha256.Size]byte]time.Time)
	for i := range problems {
		p := &problems[i]
		id := p.id()
		at, known := r.made[id]
		made[id] = at
		switch {
		case known:
		case p.document == nil:
			r.log.Warn("cannot read all policies of other engines, or what they read", "plugin", r.plugin, "error", p.text)
		default:
			o := p.document.object
			r.log.Warn("cannot evaluate all of a policy of another engine", "plugin", r.plugin, "kind", p.document.kind.String(),
				"namespace", o.GetNamespace(), "name", o.GetName(), "error", p.text)
		}
	}
	r.problems, r.made = problems, made
}

// run makes Events after each refresh, until ctx ends.
func (r *foreignReports) run(ctx context.Context, refreshed, _ wake.Signal) {
	for refreshed.Wait(ctx, eventEvery, 0) {
		for _, p := range r.due(time.Now()) {
			if err := r.makeEvent(ctx, &p, time.Now()); err != nil {
				if text := err.Error(); text != r.fault {
					r.fault = text
					r.log.Warn("cannot create an Event about a policy", "plugin", r.plugin, "error", text)
				}
				break
			}
			r.mu.Lock()
			if _, known := r.made[p.id()]; known {
				r.made[p.id()] = time.Now()
			}
			r.mu.Unlock()
		}
	}
}

// due returns the problems for which there is no Event, at most eventsMax.
func (r *foreignReports) due(now time.Time) (due []foreignProblem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.problems {
		p := &r.problems[i]
		if p.document != nil && now.Sub(r.made[p.id()]) >= eventEvery && len(due) < eventsMax {
			due = append(due, *p)
		}
	}
	return due
}

// makeEvent makes an Event of a document. Its name is the same in all replicas, so that one of
// them makes it.
func (r *foreignReports) makeEvent(ctx context.Context, p *foreignProblem, now time.Time) error {
	o, id := p.document.object, p.id()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault // as for all Events of objects without one
	}
	host, err := os.Hostname() // of a pod, its name
	if err != nil {
		host = defaultHost
	}
	at := metav1.NewTime(now)
	apiVersion, kind := p.document.kind.ToAPIVersionAndKind()
	name := o.GetName()
	_, err = r.events.Create(ctx, &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", name[:min(len(name), eventNameMax)], id[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: o.GetNamespace(), Name: name, UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		},
		Type: corev1.EventTypeWarning, Reason: reasonNotEvaluated, Message: cutText("fastadmit: " + p.text),
		Source: corev1.EventSource{Component: "fastadmit", Host: host}, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: "fastadmit.io/" + r.plugin, ReportingInstance: host,
	})
	if apierrors.IsAlreadyExists(err) { // another replica made it
		return nil
	}
	return err
}

// cutText cuts the message of an Event, between characters.
func cutText(text string) string {
	const mark = "..."
	if len(text) <= eventMessageMax {
		return text
	}
	return strings.ToValidUTF8(text[:eventMessageMax-len(mark)], "") + mark
}
