// Package initializers is the admission plugin Initializers.
//
// It holds back new objects until controllers that the operator names have prepared them:
// each object gets a list of pending initializers, and only users with the permission to
// initialize can remove entries. Use it if a pod must not run before something outside the
// cluster is ready, which may take minutes.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/initialization of Kubernetes v1.13, the
// last release that had it. The API no longer has metadata.initializers: the list consists
// of the scheduling gates of a pod, and of an annotation of other objects.
package initializers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

const (
	// gatePrefix comes before the name of an initializer in the name of a scheduling gate.
	gatePrefix = "initializers.fastadmit.io/"
	// pendingKey is the annotation with the names of the pending initializers, separated by
	// commas. If it is set but empty, the object wants none.
	pendingKey = "initializers.fastadmit.io/pending"
	// mirrorKey is the annotation of mirror pods, which a kubelet runs already.
	mirrorKey = "kubernetes.io/config.mirror"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	everything := admission.Any()
	everything.Operations = []codec.Operation{codec.Create, codec.Update}
	return admission.Plugin{
		Name:        "Initializers",
		Summary:     "holds new objects back until configured controllers have processed them",
		Rules:       []admission.Rule{everything},
		Mutates:     true,
		Validates:   true,
		LastRelease: "1.13",
		Needs:       []cluster.Need{cluster.SubjectAccessReviews.Called("create")},
		New: func(setup admission.Setup) (admission.Handler, error) {
			known, err := load(setup)
			if err != nil {
				return admission.Handler{}, err
			}
			p := &plugin{known, cluster.AccessIn(setup.Cluster)}
			return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	initializers []initializer
	access       *cluster.Access
}

// A pending is the list of pending initializers of an object.
type pending struct {
	gates  codec.Value // spec.schedulingGates of a pod
	text   string      // the annotation of another object, as a view
	some   bool        // whether the list is not empty
	bypass bool        // the object wants no initializers
}

// names yields the names in the list, as views of the object.
func (p *pending) names(yield func(string) bool) {
	for _, gate := range p.gates.Elements() {
		if name, ok := strings.CutPrefix(gate.Get("name").String(), gatePrefix); ok && !yield(name) {
			return
		}
	}
	for rest, more := p.text, p.text != ""; more; {
		var name string
		if name, rest, more = strings.Cut(rest, ","); !yield(name) {
			return
		}
	}
}

func (p *pending) equals(want []string) bool {
	for name := range p.names {
		if len(want) == 0 || want[0] != name {
			return false
		}
		want = want[1:]
	}
	return len(want) == 0
}

// admit sets the list of a new object without one. validate checks everything else.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.Operation() != codec.Create || review.SubResource() != "" || review.Object.Root().Kind() != codec.KindObject {
		return admission.Allowed()
	}
	has, want := pendingOf(review, &review.Object), p.wanted(review)
	if has.some || has.bypass || len(want) == 0 {
		return p.decide(ctx, review, has, want)
	}
	if !isPod(review) {
		review.Object.SetString(strings.Join(want, ","), "metadata", "annotations", pendingKey)
		return admission.Allowed()
	}
	for _, name := range want {
		review.Object.Append(string(append(codec.AppendString([]byte(`{"name":`), gatePrefix+name), '}')), "spec", "schedulingGates")
	}
	return admission.Allowed()
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if review.Object.Root().Kind() != codec.KindObject {
		return admission.Allowed()
	}
	has := pendingOf(review, &review.Object)
	if review.Operation() == codec.Update {
		return p.update(ctx, review, has)
	}
	if review.SubResource() != "" {
		return admission.Allowed()
	}
	return p.decide(ctx, review, has, p.wanted(review))
}

// decide denies a new object whose list is not the configured one, unless the user may
// initialize it.
func (p *plugin) decide(ctx context.Context, review *codec.Review, has pending, want []string) admission.Result {
	if !has.bypass && has.equals(want) {
		return admission.Allowed()
	}
	return p.demand(ctx, review, "create with initializers denied")
}

// update denies changes of an object with a list, unless the user may initialize it. It also
// denies adding a list.
func (p *plugin) update(ctx context.Context, review *codec.Review, has pending) admission.Result {
	had := pendingOf(review, &review.OldObject)
	switch {
	case !had.some && !has.some, review.OldObject.Get("metadata", "deletionTimestamp").Kind() == codec.KindString,
		review.SubResource() != "" && has.equals(slices.Collect(had.names)):
		return admission.Allowed()
	case !had.some:
		kind := review.Kind()
		at := field.NewPath("metadata", "annotations").Key(pendingKey)
		if isPod(review) {
			at = field.NewPath("spec", "schedulingGates")
		}
		return admission.Denied(apierrors.NewInvalid(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, review.Name(),
			field.ErrorList{field.Invalid(at, "null", "field is immutable once initialization has completed")}))
	}
	return p.demand(ctx, review, "update to uninitialized resource denied")
}

// demand denies the request unless the user may initialize the object.
func (p *plugin) demand(ctx context.Context, review *codec.Review, otherwise string) admission.Result {
	resource := review.Resource()
	spec, err := accessreview.Spec(review, &authorizationv1.ResourceAttributes{
		Verb: "initialize", Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
		Namespace: review.Namespace(), Name: review.Name(),
	})
	if err != nil {
		return admission.Errored(err)
	}
	status, err := p.access.Review(ctx, spec)
	if err != nil {
		return admission.Errored(err)
	}
	if status.Allowed && !status.Denied {
		return admission.Allowed()
	}
	group := schema.GroupResource{Group: resource.Group, Resource: resource.Resource}
	return admission.Denied(apierrors.NewForbidden(group, review.Name(), fmt.Errorf("%s: %s", otherwise, status.Reason)))
}

// wanted returns the names of the initializers that are configured for a new object.
func (p *plugin) wanted(review *codec.Review) (names []string) {
	if isPod(review) && review.Object.Get("metadata", "annotations", mirrorKey).Exists() {
		return nil
	}
	for i := range p.initializers {
		if p.initializers[i].matches(review.Resource()) {
			names = append(names, p.initializers[i].Name)
		}
	}
	return names
}

func isPod(review *codec.Review) bool {
	resource := review.Resource()
	return resource.Group == "" && resource.Resource == "pods"
}

// pendingOf returns the list of an object.
func pendingOf(review *codec.Review, object *codec.Object) (p pending) {
	annotation := object.Get("metadata", "annotations", pendingKey)
	if isPod(review) {
		p.gates = object.Get("spec", "schedulingGates")
	} else {
		p.text = annotation.String()
	}
	for range p.names {
		p.some = true
		break
	}
	p.bypass = !p.some && annotation.Exists() && annotation.String() == ""
	return p
}
