// Package podtolerationrestriction is the admission plugin
// PodTolerationRestriction.
//
// It gives the pods of a namespace tolerations, and refuses pods that tolerate
// more than their namespace may. Taints keep pods off nodes that are meant for
// others only as long as not everybody can write a toleration; with this plugin
// it takes who may annotate the namespace.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podtolerationrestriction.
package podtolerationrestriction

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/memo"
	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// Annotations of namespaces: lists of tolerations, as JSON.
const (
	annotationDefault   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	annotationWhitelist = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// pressure is what every pod gets that asks for processors or memory.
var pressure = newTolerations([]corev1.Toleration{{
	Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
}})

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "PodTolerationRestriction",
		Summary:   "adds the tolerations of a namespace to its pods, and denies pods with other tolerations than it allows",
		Rules:     []admission.Rule{admission.CreateUpdate("pods")},
		Mutates:   true,
		Validates: true,
		Needs:     []cluster.Need{cluster.Namespaces.Watched()},
		New:       newHandler,
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
	// standard and whitelist are for namespaces without annotation.
	standard, whitelist *known
	known               *memo.Memo[*known]
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	c, err := loadConfiguration(setup.Config)
	if err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{
		namespaces: cluster.Namespaces.In(setup.Cluster),
		standard:   newTolerations(c.Default),
		whitelist:  newTolerations(c.Whitelist),
		known:      memo.New(parse),
	}
	return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
}

// admit merges the tolerations that the pod gets into those that it has, and
// then denies what validate does.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	var given [2]*tolerations.Given
	n := 0
	if review.Operation() == codec.Create {
		standard, _, err := p.of(ctx, review, annotationDefault, p.standard)
		if err != nil {
			return failed(err)
		}
		if standard.Len() > 0 {
			given[n] = standard.Given
			n++
		}
	}
	if !isBestEffort(&review.Object) {
		given[n] = pressure.Given
		n++
	}
	if n > 0 {
		if err := tolerations.Merge(ctx, &review.Object, given[:n]...); err != nil {
			return admission.Errored(err)
		}
	}
	return p.validate(ctx, review)
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	all := review.Object.Get("spec", "tolerations")
	if !all.Get(codec.Index(0)).Exists() {
		return admission.Allowed()
	}
	whitelist, scope, err := p.of(ctx, review, annotationWhitelist, p.whitelist)
	if err != nil {
		return failed(err)
	}
	if whitelist.Len() == 0 {
		return admission.Allowed()
	}
	for _, has := range all.Elements() {
		if t := tolerations.Read(has); !whitelist.set.Covers(&t) {
			return admission.Denied(fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) "+
				"conflict with its %s whitelist", scope))
		}
	}
	return admission.Allowed()
}

// of returns the tolerations in an annotation of the pod's namespace, or the
// cluster's if it has none, and whose they are.
func (p *plugin) of(ctx context.Context, review *codec.Review, annotation string, clusters *known) (t *known, scope string, err error) {
	namespace, err := p.namespaces.Get(ctx, "", review.Namespace())
	if err != nil {
		return nil, "", err
	}
	text, ok := namespace.Annotations[annotation]
	if !ok {
		return clusters, "cluster", nil
	}
	if t = p.known.Get(text); t.err != nil {
		return nil, "", &annotationError{t.err}
	}
	return t, "namespace", nil
}

// An annotationError is what is wrong with an annotation. It denies, with the
// text of the error in it, as upstream has it.
type annotationError struct{ error }

// failed says what to answer when tolerations of a namespace cannot be had.
func failed(err error) admission.Result {
	if _, wrong := errors.AsType[*annotationError](err); wrong || apierrors.IsNotFound(err) {
		return admission.Denied(err)
	}
	if cluster.IsInvalidName(err) {
		return admission.Denied(apierrors.NewInternalError(err))
	}
	return admission.Errored(err)
}

// isBestEffort reports whether a pod is of that class of service: the one that
// its status says, or else the one that its resources make it. (Upstream:
// pkg/apis/core/helper/qos.)
func isBestEffort(object *codec.Object) bool {
	if class := object.Get("status", "qosClass").String(); class != "" {
		return class == string(corev1.PodQOSBestEffort)
	}
	spec := object.Get("spec")
	if own := spec.Get("resources"); own.Kind() == codec.KindObject {
		return !asks(own)
	}
	for _, list := range [...]string{"containers", "initContainers"} { // ephemeral ones have no resources
		for _, container := range spec.Get(list).Elements() {
			if asks(container.Get("resources")) {
				return false
			}
		}
	}
	return true
}

// asks reports whether there is an amount of processors or memory in resources.
func asks(resources codec.Value) bool {
	for _, list := range [...]string{"requests", "limits"} {
		amounts := resources.Get(list)
		for _, name := range [...]string{"cpu", "memory"} {
			if q, err := quantity.Parse(amounts.Get(name)); err == nil && q.Sign() > 0 {
				return true
			}
		}
	}
	return false
}
