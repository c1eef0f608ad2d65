// Package limitranger is the admission plugin LimitRanger.
//
// It enforces the LimitRanges of a namespace: it sets default requests and limits in
// containers without them, and denies pods and claims that request too little or too much.
// Use it if many users share nodes, and not all of them set requests and limits.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/limitranger.
package limitranger

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "LimitRanger",
		Summary:     "sets the defaults of a namespace's LimitRanges in containers, and enforces their limits",
		Rules:       rules(),
		Mutates:     true,
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.LimitRanges.Watched()},
		New:         func(setup admission.Setup) (admission.Handler, error) { return newHandler(setup, time.Now) },
	}
}

func rules() []admission.Rule {
	core := func(resource string, operations ...codec.Operation) admission.Rule {
		return admission.Rule{Operations: operations, Groups: []string{""}, Versions: []string{"v1"}, Resources: []string{resource}}
	}
	return []admission.Rule{
		core("pods", codec.Create), // an update cannot change fields with limits
		core("pods/resize", codec.Update),
		core("persistentvolumeclaims", codec.Create, codec.Update),
	}
}

func newHandler(setup admission.Setup, now func() time.Time) (admission.Handler, error) {
	asked, err := simplelru.NewLRU[string, answer](askedMax, nil)
	if err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{ranges: cluster.LimitRanges.In(setup.Cluster), now: now, asked: asked, ofPods: setup.Version.AtLeast(1, 34)}
	return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
}

type plugin struct {
	ranges *cluster.Objects[*corev1.LimitRange]
	now    func() time.Time
	ofPods bool // the resources of pods themselves count: the gate PodLevelResources is on since 1.34

	mu    sync.Mutex
	asked *simplelru.LRU[string, answer] // by namespace
}

// An answer is the API server's list of a namespace's LimitRanges.
type answer struct {
	ranges []*corev1.LimitRange
	until  time.Time // when the answer expires
}

// Both are the same as upstream.
const (
	askedMax  = 10_000           // the number of namespaces with a cached answer; the least recently used one is dropped
	answerTTL = 30 * time.Second // how long an answer is cached
)

// in returns the LimitRanges of a namespace, sorted by name. If the watch has none, the
// first one may have been created a moment ago, so it asks the API server and caches the
// answer for a while. It does not allocate if the LimitRanges or the answer are cached. The
// name is not retained.
func (p *plugin) in(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	if known, err := p.ranges.List(namespace); len(known) > 0 || err != nil {
		return known, err
	}
	if ranges, ok := p.cached(namespace); ok {
		return ranges, nil
	}
	live, err := p.ranges.ListLive(ctx, namespace)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(live, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	p.remember(namespace, live)
	return live, nil
}

func (p *plugin) cached(namespace string) ([]*corev1.LimitRange, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cached, ok := p.asked.Get(namespace)
	return cached.ranges, ok && !cached.until.Before(p.now())
}

// remember caches the answer about a namespace. It copies the name. It ignores a name that
// is too long for a namespace, because it could be as long as a request.
func (p *plugin) remember(namespace string, ranges []*corev1.LimitRange) {
	if len(namespace) > validation.DNS1123LabelMaxLength {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked.Add(strings.Clone(namespace), answer{ranges: ranges, until: p.now().Add(answerTTL)})
}

const claims = "persistentvolumeclaims"

// noRange is why an object is not checked.
const noRange = "its namespace has no LimitRange"

// admit sets the defaults of a pod.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if isDeleted(review) {
		return admission.Allowed()
	}
	ranges, err := p.in(ctx, review.Namespace())
	if err != nil {
		return unknown(review, err)
	}
	if len(ranges) == 0 {
		return admission.Unchecked(noRange)
	}
	if review.Resource().Resource == claims {
		return admission.Allowed() // claims have no defaults
	}
	for _, r := range ranges {
		setDefaults(&review.Object, r.Spec.Limits)
	}
	return admission.Allowed()
}

// validate sees the object as it will be stored, with the changes of other webhooks. The
// denial has the messages of the first LimitRange that the object violates.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if isDeleted(review) {
		return admission.Allowed()
	}
	ranges, err := p.in(ctx, review.Namespace())
	if err != nil {
		return unknown(review, err)
	}
	if len(ranges) == 0 {
		return admission.Unchecked(noRange)
	}
	for _, r := range ranges {
		v := violations{review: review, ofPods: p.ofPods}
		if review.Resource().Resource == claims {
			err = v.checkClaim(r.Spec.Limits, review.Object.Get("spec"))
		} else {
			err = v.checkPod(r.Spec.Limits, review.Object.Get("spec"))
		}
		switch {
		case err != nil:
			return admission.Errored(err)
		case len(v.messages) > 0:
			denied := v // a copy, so that v is not allocated on the heap
			return admission.Denied(admission.Forbidden(review, &denied))
		}
	}
	return admission.Allowed()
}

// unknown returns the result for an error of reading the LimitRanges.
func unknown(review *codec.Review, err error) admission.Result {
	if cluster.IsInvalidName(err) {
		return admission.Denied(admission.Forbidden(review, err))
	}
	return admission.Errored(err)
}

// isDeleted reports whether the review updates an object that is being deleted. Limits do
// not apply, so that its finalizers can be removed.
func isDeleted(review *codec.Review) bool {
	return review.OldObject.Get("metadata", "deletionTimestamp").IsSet()
}
