package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
	"github.com/fastadmit/fastadmit/internal/policy/status"
)

// retryPause is how often the status of configurations is written that could not be
// written.
const retryPause = 10 * time.Second

// resources are the configurations that are custom resources.
type resources struct {
	source  *Source
	objects *cluster.Objects[*cluster.JSON]
	known   atomic.Bool  // they were listed, and what they say is followed
	stale   atomic.Bool  // they changed since they were made ready
	invalid atomic.Int64 // configurations of which a part is not called as it says

	mu    sync.Mutex
	ready map[string]*readyResource // by name
}

// readyResource is what became of a custom resource.
type readyResource struct {
	object   *cluster.JSON
	webhooks []*Webhook
	err      error // what is wrong with it
	writer   status.Writer
}

func newResources(s *Source, view *cluster.View) *resources {
	r := &resources{source: s, objects: s.kind.resources.In(view), ready: make(map[string]*readyResource)}
	r.stale.Store(true)
	r.objects.Subscribe(func() { r.stale.Store(true) })
	s.metrics.countInvalid(func() float64 { return float64(r.invalid.Load()) })
	return r
}

func (r *resources) isKnown() bool { return r.known.Load() }

// refresh makes ready what changed.
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
	for _, object := range r.objects.List("") {
		made := r.ready[object.GetName()]
		if made != nil && made.isSame(object) {
			made.object = object
		} else {
			made = r.source.readyStored(object)
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

// isSame reports whether an object has the webhooks that were made ready: those keep their
// connections, and their circuits, where only the status or the metadata changed.
func (m *readyResource) isSame(object *cluster.JSON) bool {
	return m.object == object || object.GetUID() != "" && m.object.GetUID() == object.GetUID() &&
		object.GetGeneration() != 0 && m.object.GetGeneration() == object.GetGeneration()
}

// readyStored makes the webhooks of a custom resource ready. A webhook that is not valid,
// which was written when nobody checked it, is not called: it fails for what its rules
// select, and its failurePolicy decides, which is Fail unless it is Ignore. A condition that
// does not compile fails when it is evaluated.
func (s *Source) readyStored(object *cluster.JSON) *readyResource {
	made := &readyResource{object: object}
	c, err := s.kind.readStored(object)
	if err != nil {
		made.err = fmt.Errorf("cannot be read: %w", err)
		return made // and nobody knows what it is for
	}
	var errs []error
	for i := range c.webhooks {
		path := field.NewPath("webhooks").Index(i)
		invalid := checkWebhook(&c.webhooks[i], true, path).ToAggregate()
		w, err := newWebhook(s, c.Name, &c.webhooks[i], path)
		if invalid != nil {
			err = invalid
			// Without the details, in which there may be secrets.
			w.invalid = fmt.Errorf("it is not valid; the status of the %s %q of %s says why", s.kind.Name, c.Name, cluster.WebhookGroup)
		}
		errs = append(errs, err)
		w.metrics = s.metrics.of(w)
		made.webhooks = append(made.webhooks, w)
	}
	made.err = errors.Join(errs...)
	return made
}

// run follows the custom resources until ctx ends: it makes ready what changes, and writes
// what became of it into their status. See admission.Handler.
func (r *resources) run(ctx context.Context, rulesChanged func()) {
	select {
	case <-r.objects.Synced():
	case <-ctx.Done():
		return
	}
	bell, written := make(chan struct{}, 1), make(chan struct{}, 1)
	defer r.objects.Subscribe(func() { ring(bell) })()
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { r.keepStatus(ctx, written) })
	var last []admission.Rule
	for {
		r.refresh()
		r.known.Store(true)
		if now := r.source.rules(); !reflect.DeepEqual(now, last) {
			last = now
			rulesChanged()
		}
		ring(written)
		wait := time.NewTimer(retryPause)
		select {
		case <-bell:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// ring has the receiver of a channel of length 1 run once more.
func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it rings already
	}
}

// ownRule selects the custom resources themselves, which are checked.
func (k *Kind) ownRule() admission.Rule {
	return admission.Rule{
		Operations: []codec.Operation{codec.Create, codec.Update}, Groups: []string{cluster.WebhookGroup}, Versions: []string{"*"},
		Resources: []string{k.resources.Resource().Resource}, Scope: "Cluster",
	}
}

// check denies to write a custom resource that is not valid, or has expressions that do
// not compile. No webhook is called for them.
func (s *Source) check(review *codec.Review) admission.Result {
	if s.resources == nil || review.SubResource() != "" || review.Resource().Resource != s.kind.resources.Resource().Resource || !isWrite(review) {
		return admission.Allowed()
	}
	err := s.checkReviewed(review)
	if err == nil {
		return admission.Allowed()
	}
	return admission.Denied(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}})
}

// isWrite reports whether a review creates an object or changes its webhooks: what was
// written when nobody checked it can still be labelled and deleted.
func isWrite(review *codec.Review) bool {
	switch review.Operation() {
	case codec.Create:
		return true
	case codec.Update:
		return review.Object.Get("webhooks").JSON() != review.OldObject.Get("webhooks").JSON()
	}
	return false
}

// checkReviewed says what is wrong with a copy of the object. If there is no memory for it,
// the chain takes the Err of the review for the result.
func (s *Source) checkReviewed(review *codec.Review) error {
	metadata, webhooks := review.Object.Get("metadata").JSON(), review.Object.Get("webhooks").JSON()
	if webhooks == "" {
		webhooks = "[]"
	}
	text := []byte(`{"metadata":` + metadata + `,"webhooks":` + webhooks + `}`)
	c, errs := s.kind.decode(func(into any) []error { return documents.Decode(text, into) })
	if errs == nil {
		errs = s.kind.named(c, c.check(true))
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
