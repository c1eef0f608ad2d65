// Package podtolerationrestriction is the admission plugin
// PodTolerationRestriction.
//
// It adds tolerations to the pods of a namespace, and denies pods that tolerate more than
// their namespace allows. Otherwise every author of pods could tolerate the taints that
// reserve nodes for others. With this plugin, only users who may annotate the namespace can
// allow it.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podtolerationrestriction.
package podtolerationrestriction

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/memo"
	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// Annotations of namespaces with a JSON list of tolerations.
const (
	annotationDefault   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	annotationWhitelist = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// pressure is the toleration for every pod that is not best-effort.
var pressure = newTolerations([]corev1.Toleration{{
	Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
}})

// Plugin returns the plugin, for the table of package handlers.
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
	// standard and whitelist apply to namespaces without the annotation.
	standard, whitelist *known
	known               *memo.Memo[*known]
	version             admission.Version
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
		version:    setup.Version,
	}
	return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
}

// admit merges the tolerations for the pod into its own, and then runs the checks of
// validate.
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
	if !p.isBestEffort(&review.Object) {
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

// of returns the tolerations in an annotation of the pod's namespace, or the cluster's if it
// has none. scope says which of the two.
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

// An annotationError describes an invalid annotation. It denies the request, with the text
// of the error, as upstream does.
type annotationError struct{ error }

// failed returns the result if the tolerations of a namespace cannot be read.
func failed(err error) admission.Result {
	if _, wrong := errors.AsType[*annotationError](err); wrong || apierrors.IsNotFound(err) {
		return admission.Denied(err)
	}
	if cluster.IsInvalidName(err) {
		return admission.Denied(apierrors.NewInternalError(err))
	}
	return admission.Errored(err)
}

// isBestEffort reports whether a pod has the QoS class BestEffort, in its status or else by
// its resources (k8s.io/kubernetes pkg/apis/core/helper/qos). Its own resources count since 1.34;
// until 1.36 also those that name neither CPU nor memory.
func (p *plugin) isBestEffort(object *codec.Object) bool {
	if class := object.Get("status", "qosClass").String(); class != "" {
		return class == string(corev1.PodQOSBestEffort)
	}
	spec := object.Get("spec")
	own := spec.Get("resources")
	if own.IsSet() && p.version.AtLeast(1, 34) && (!p.version.AtLeast(1, 37) || isPodLevel(own)) {
		return !p.asks(own)
	}
	for _, list := range [...]string{"containers", "initContainers"} { // ephemeral containers have no resources
		for _, container := range spec.Get(list).Elements() {
			if p.asks(container.Get("resources")) {
				return false
			}
		}
	}
	return true
}

// isPodLevel reports whether the resources of a pod count instead of those of its containers
// (k8s.io/component-helpers resource IsPodLevelResourcesSet).
func isPodLevel(resources codec.Value) bool {
	for _, list := range [...]string{"requests", "limits"} {
		for name := range resources.Get(list).Members() {
			if resourcehelper.IsSupportedPodLevelResource(corev1.ResourceName(name)) {
				return true
			}
		}
	}
	return false
}

// asks reports whether resources has an amount of CPU or memory. A negative amount, which is invalid,
// counts since 1.37.
func (p *plugin) asks(resources codec.Value) bool {
	for _, list := range [...]string{"requests", "limits"} {
		amounts := resources.Get(list)
		for _, name := range [...]string{"cpu", "memory"} {
			if q, err := quantity.Parse(amounts.Get(name)); err == nil && (q.Sign() > 0 || q.Sign() < 0 && p.version.AtLeast(1, 37)) {
				return true
			}
		}
	}
	return false
}
