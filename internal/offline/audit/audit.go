// Package audit reviews the existing objects of a cluster: it finds out what the enabled
// plugins would decide if the objects were written now. Lists are processed while they are
// received, so memory does not grow with the size of the cluster.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
)

// Options select the objects and configure their reviews.
type Options struct {
	// Review configures the reviews. Its Operation is CREATE or UPDATE. Run sets Selects.
	Review review.Options
	// Against, if it is set, are the options of a second review of each object. Its result is in the field
	// Against of the first one.
	Against *review.Options
	// Config configures the client of the API server, and its rate limit.
	Config *rest.Config
	// Webhooks are the registered webhooks of fastadmit. Objects for which kube-apiserver
	// would call none of them are skipped.
	Webhooks []admissionregistrationv1.ValidatingWebhook
	// NamespaceLabels looks up the labels of namespaces for the selectors of Webhooks.
	NamespaceLabels match.Namespaces
	// Namespaces limits the audit to objects in these namespaces. If it is empty, all
	// objects are reviewed, cluster-scoped ones included.
	Namespaces []string
	// PageSize is the number of objects to list in one request.
	PageSize int64
	// Progress, if set, is called after each object.
	Progress func(p Progress)

	retries wait.Backoff // between attempts; those of the package if it is zero
}

// Progress describes the state of an audit.
type Progress struct {
	Resource  string // plural, with its group
	Reviewed  int64  // objects of the resource
	Remaining int64  // objects that follow the last page, 0 if the API server did not say
}

// DefaultPageSize is the default of kubectl's flag --chunk-size.
const DefaultPageSize = 500

// audit is one run.
type audit struct {
	*Options
	client *client
	rules  []admission.Rule
	match  []*match.Matcher
}

// Run reviews the objects of the cluster and calls emit with the result of each. It
// processes one resource after the other; objects are in the order of the list. If a
// resource cannot be listed, there is a result with the decision Broken. Run returns the
// first error of emit, the error of ctx, or an error if it cannot ask the API server for
// the resources or there are none to review.
func Run(ctx context.Context, o Options, emit func(*report.Result) error) error {
	a := &audit{Options: &o}
	var err error
	if a.client, err = newClient(o.Config, o.PageSize); err != nil {
		return err
	}
	if o.retries != (wait.Backoff{}) {
		a.client.retries = o.retries
	}
	for i := range o.Webhooks {
		w := &o.Webhooks[i]
		m, err := match.New(&match.Criteria{Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector}, nil)
		if err != nil {
			return err
		}
		a.match = append(a.match, m)
		for j := range w.Rules {
			a.rules = append(a.rules, match.NewRule(&w.Rules[j]))
		}
	}
	a.Review.Selects = a.selects
	if a.Against != nil {
		a.Against.Selects = a.selects
	}
	resources, faults, err := a.resources(ctx)
	if err != nil {
		return err
	}
	for _, fault := range faults {
		if err := emit(fault); err != nil {
			return err
		}
	}
	if len(resources) == 0 && len(faults) == 0 {
		return fmt.Errorf("there is nothing to review: kube-apiserver can list none of the resources whose %s the plugins handle", o.Review.Operation)
	}
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, r := range resources {
		for _, namespace := range namespaces {
			if err := a.resource(ctx, r, namespace, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// selects reports whether kube-apiserver would call any of the webhooks.
func (a *audit) selects(ctx context.Context, review *codec.Review) (bool, error) {
	attributes := admission.AttributesOf(review)
	for _, m := range a.match {
		if matched, err := m.Matches(ctx, review, &attributes, a.NamespaceLabels); matched || err != nil {
			return matched, err
		}
	}
	return false, nil
}

func broken(r *resource, err error) *report.Result {
	result := &report.Result{Decision: report.Broken, Message: err.Error()}
	if r != nil {
		result.APIVersion, result.Kind, result.Resource = r.GroupVersion().String(), r.kind, r.GroupVersionResource.Resource
	}
	return result
}

// A job is an object to review.
type job struct {
	text json.RawMessage
	done chan *report.Result // has room for the result
}

// queueLength is the number of objects in memory for each processor: enough that a
// slow review does not stop the others, and at most 12 MiB of the largest objects
// that etcd stores.
const queueLength = 8

// errStopped ends a list whose objects are no longer wanted.
var errStopped = errors.New("stopped")

// reviewer returns a function that reviews objects of a resource. Only one goroutine at a time may call it.
func (a *audit) reviewer(r *resource) func(ctx context.Context, text []byte) *report.Result {
	live := review.NewLive(a.Review)
	if a.Against == nil {
		return func(ctx context.Context, text []byte) *report.Result {
			return live.Review(ctx, r.gvk(), r.Resource, text)
		}
	}
	against := review.NewLive(*a.Against)
	return func(ctx context.Context, text []byte) *report.Result {
		result := live.Review(ctx, r.gvk(), r.Resource, text)
		result.Against = against.Review(ctx, r.gvk(), r.Resource, text)
		return result
	}
}

// resource reviews the objects of a resource.
func (a *audit) resource(ctx context.Context, r *resource, namespace string, emit func(*report.Result) error) error {
	workers := runtime.GOMAXPROCS(0)
	jobs, ordered := make(chan *job, workers*queueLength), make(chan *job, workers*queueLength)
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			ask := a.reviewer(r)
			for j := range jobs {
				j.done <- ask(inner, j.text)
			}
		})
	}
	progress := Progress{Resource: r.GroupResource().String()}
	remaining := make(chan int64, 1)
	var listed error
	running.Go(func() {
		defer close(ordered)
		defer close(jobs)
		listed = a.client.list(inner, &listing{path: r.path(namespace), visit: func(text json.RawMessage) error {
			j := &job{text, make(chan *report.Result, 1)}
			for _, queue := range [...]chan *job{jobs, ordered} {
				select {
				case queue <- j:
				case <-inner.Done():
					return context.Cause(inner)
				}
			}
			return nil
		}, page: func(n int64) {
			select {
			case <-remaining:
			default:
			}
			remaining <- n
		}})
	})
	var failed error
	for j := range ordered {
		result := <-j.done
		if failed != nil {
			continue
		}
		if failed = emit(result); failed != nil {
			stop(errStopped)
			continue
		}
		progress.Reviewed++
		select {
		case progress.Remaining = <-remaining:
		default:
		}
		if a.Progress != nil {
			a.Progress(progress)
		}
	}
	running.Wait()
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case listed != nil:
		return emit(broken(r, fmt.Errorf("cannot list %s after %d objects: %w", r.GroupResource(), progress.Reviewed, listed)))
	}
	return nil
}
