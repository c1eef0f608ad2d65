package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// resources are the configurations that are custom resources.
type resources struct {
	source   *Source
	objects  *cluster.Objects[*cluster.JSON]
	follower *customresource.Follower
	stale    atomic.Bool  // objects changed after the last refresh
	invalid  atomic.Int64 // the number of configurations with errors

	mu    sync.Mutex
	ready map[string]*readyResource // by name
}

// readyResource is a custom resource with its webhooks.
type readyResource struct {
	object   *cluster.JSON
	webhooks []*Webhook
	err      error // all errors in it
	writer   status.Writer
}

func newResources(s *Source, view *cluster.View) *resources {
	r := &resources{source: s, objects: s.kind.resources.In(view), ready: make(map[string]*readyResource)}
	r.follower = &customresource.Follower{
		Resources: []customresource.Watched{r.objects},
		Refresh:   func(context.Context) { r.refresh() }, Rules: s.rules,
		Background: []func(ctx context.Context, refreshed, changed wake.Signal){r.runStatus},
	}
	r.stale.Store(true)
	r.objects.Subscribe(func() { r.stale.Store(true) })
	s.metrics.countInvalid(func() float64 { return float64(r.invalid.Load()) })
	return r
}

// refresh makes the webhooks of changed custom resources ready. Webhooks of other resources keep their
// connections and circuits, also if only the status or the metadata changed.
func (r *resources) refresh() {
	if !r.stale.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stale.Swap(false) {
		return
	}
	ready := make(map[string]*readyResource)
	var all []*Webhook
	var invalid int64
	objects, err := r.objects.List("")
	if err != nil { // a resource is too large for the cache, which logs that; the webhooks do not change
		return
	}
	for _, object := range objects {
		made := r.ready[object.GetName()]
		if made != nil && customresource.IsSame(made.object, object) {
			made.object = object
		} else {
			made = r.source.readyCustom(object)
		}
		ready[object.GetName()] = made
		if made.err != nil {
			invalid++
		}
		all = append(all, made.webhooks...)
	}
	r.ready = ready
	r.invalid.Store(invalid)
	r.source.use(all)
}

// readyCustom makes the webhooks of a custom resource ready. The resource may be invalid if it
// was written while fastadmit did not run. An invalid webhook is not called: each request that its
// rules select counts as a failed call, and its failurePolicy decides; every value except Ignore
// means Fail. A match condition that does not compile fails when it is evaluated.
func (s *Source) readyCustom(object *cluster.JSON) *readyResource {
	made := &readyResource{object: object}
	c, errs := s.kind.decode(func(into any) []error {
		if err := customresource.Decode(object, into); err != nil {
			return []error{err}
		}
		return nil
	})
	if errs != nil {
		made.err = errors.Join(errs...)
		return made // it is unknown which requests its webhooks select
	}
	for i := range c.webhooks {
		path := field.NewPath("webhooks").Index(i)
		invalid := checkWebhook(&c.webhooks[i], true, path).ToAggregate()
		w, err := newWebhook(s, c.Name, &c.webhooks[i], path)
		if invalid != nil {
			err = invalid
			// The details are left out: they may contain secrets.
			w.invalid = fmt.Errorf("it is not valid; the status of the %s %q of %s says why", s.kind.Name, c.Name, cluster.WebhookGroup)
		}
		errs = append(errs, err)
		w.metrics = s.metrics.of(w)
		made.webhooks = append(made.webhooks, w)
	}
	made.err = errors.Join(errs...)
	return made
}

// check denies writing a custom resource that is invalid or has expressions that do not
// compile. No webhook is called for custom resources.
func (s *Source) check(review *codec.Review) admission.Result {
	if s.resources == nil || review.Resource().Resource != s.kind.resources.Resource().Resource {
		return admission.Allowed()
	}
	return customresource.Check(review, "webhooks", "[]", s.validate)
}

// validate returns all errors in a configuration.
func (s *Source) validate(document []byte) error {
	c, errs := s.kind.decode(func(into any) []error { return documents.Decode(document, into) })
	if errs == nil {
		errs = documents.Named(s.kind.Name, c.Name, c.check(true))
	}
	if errs == nil {
		for i := range c.webhooks {
			if _, err := newWebhook(s, c.Name, &c.webhooks[i], field.NewPath("webhooks").Index(i)); err != nil {
				errs = append(errs, fmt.Errorf("%s %q: %w", s.kind.Name, c.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
