// Package podnodeselector is the admission plugin PodNodeSelector.
//
// It restricts the pods of a namespace to certain nodes: it adds the namespace's node
// selector to each new pod, and denies pods that select other nodes. Enable it if teams or
// tenants have nodes of their own, because authors of pods cannot be trusted to set the
// selector.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podnodeselector.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/memo"
)

const (
	// annotation is the key of a namespace's node selector.
	annotation = "scheduler.alpha.kubernetes.io/node-selector"
	// clusterDefault is the key in the configuration of the selector for namespaces without
	// one. It is not a valid name of a namespace.
	clusterDefault = "clusterDefaultNodeSelector"
)

// The errors of denials, in upstream's words.
var (
	errConflict   = errors.New("pod node label selector conflicts with its namespace node label selector")
	errNotListed  = errors.New("pod node label selector labels conflict with its namespace whitelist")
	fieldOfConfig = field.NewPath("podNodeSelectorPluginConfig")
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "PodNodeSelector",
		Summary:   "adds the node selector of a namespace to its pods, and denies pods that select other nodes",
		Rules:     []admission.Rule{admission.NewRule("", "v1", "pods", codec.Create)},
		Mutates:   true,
		Validates: true,
		Needs:     []cluster.Need{cluster.Namespaces.Watched()},
		New:       newHandler,
	}
}

// configuration is the plugin's configuration file (upstream's readConfig).
type configuration struct {
	// Selectors has for each namespace the labels by which its pods may select nodes, and
	// for clusterDefault the selector of namespaces without the annotation.
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
}

// plugin is the parsed configuration.
type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
	standard   *selector             // of namespaces without the annotation
	allowed    map[string]labels.Set // by namespace; none is empty
	known      *memo.Memo[*selector]
}

// A selector is a parsed node selector: the members to add to a pod, sorted by label.
type selector struct {
	labels []label
	err    error // why it is invalid
}

type label struct{ key, value string }

func newHandler(setup admission.Setup) (admission.Handler, error) {
	p := &plugin{
		namespaces: cluster.Namespaces.In(setup.Cluster),
		allowed:    make(map[string]labels.Set),
		known:      memo.New(parse),
	}
	var c configuration
	if err := admission.DecodeConfig(setup.Config, &c, func() field.ErrorList { return p.load(&c) }); err != nil {
		return admission.Handler{}, err
	}
	return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
}

// load parses the configuration. Upstream parses a selector when the first pod needs it; if
// it is invalid, all pods of the namespace fail.
func (p *plugin) load(c *configuration) (errs field.ErrorList) {
	p.standard = parse(c.Selectors[clusterDefault])
	for _, name := range slices.Sorted(maps.Keys(c.Selectors)) {
		set, err := labels.ConvertSelectorToLabelsMap(c.Selectors[name])
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(fieldOfConfig.Key(name), c.Selectors[name], err.Error()))
		case len(set) > 0:
			p.allowed[name] = set // including clusterDefault, which no namespace can have as a name
		}
	}
	return errs
}

func parse(text string) *selector {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	s := &selector{err: err}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		s.labels = append(s.labels, label{key, set[key]})
	}
	return s
}

// admit adds the missing labels to the pod, and then runs the checks of validate.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	s, result, ok := p.check(ctx, review)
	if !ok {
		return result
	}
	asked := askedOf(review, s)
	for _, l := range s.labels {
		if _, ok := asked.get(l.key); !ok {
			review.Object.SetString(l.value, "spec", "nodeSelector", l.key)
		}
	}
	return p.checkAllowed(review)
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if _, result, ok := p.check(ctx, review); !ok {
		return result
	}
	return p.checkAllowed(review)
}

// check returns the selector of the pod's namespace. ok is false if it is not known or the
// pod contradicts it; result is the answer then.
func (p *plugin) check(ctx context.Context, review *codec.Review) (s *selector, result admission.Result, ok bool) {
	namespace, err := p.namespaces.Get(ctx, "", review.Namespace())
	if err != nil {
		return nil, unknown(review, err), false
	}
	s = p.standard
	if text, ok := namespace.Annotations[annotation]; ok {
		if s = p.known.Get(text); s.err != nil {
			return nil, admission.Denied(s.err), false
		}
	}
	asked := askedOf(review, s)
	for _, l := range s.labels {
		if has, ok := asked.get(l.key); ok && has != l.value {
			return nil, admission.Denied(podspec.Forbidden(review, errConflict)), false
		}
	}
	return s, admission.Result{}, true
}

// lookedUpMax is the number of labels up to which each is looked up in the pod's node
// selector without allocating. A namespace and a pod may have thousands.
const lookedUpMax = 32

// asked is the node selector of a pod.
type asked struct {
	value codec.Value
	known map[string]string // used instead of many look-ups
}

func askedOf(review *codec.Review, s *selector) asked {
	a := asked{value: review.Object.Get("spec", "nodeSelector")}
	if len(s.labels) <= lookedUpMax {
		return a
	}
	a.known = make(map[string]string)
	for key, value := range a.value.Members() {
		if _, twice := a.known[key]; !twice {
			a.known[key] = value.String()
		}
	}
	return a
}

func (a *asked) get(key string) (value string, ok bool) {
	if a.known != nil {
		value, ok = a.known[key]
		return value, ok
	}
	has := a.value.Get(key)
	return has.String(), has.Exists()
}

// unknown returns the result if the namespace cannot be read.
func unknown(review *codec.Review, err error) admission.Result {
	if apierrors.IsNotFound(err) || cluster.IsInvalidName(err) { // upstream returns an internal error for this
		return admission.Denied(apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", review.Namespace())))
	}
	return admission.Errored(err)
}

// checkAllowed denies a pod that selects nodes by labels that the configuration does not
// allow for its namespace, if it lists any.
func (p *plugin) checkAllowed(review *codec.Review) admission.Result {
	allowed, ok := p.allowed[review.Namespace()]
	if !ok {
		return admission.Allowed()
	}
	for key, value := range review.Object.Get("spec", "nodeSelector").Members() {
		if want, ok := allowed[key]; !ok || want != value.String() {
			return admission.Denied(podspec.Forbidden(review, errNotListed))
		}
	}
	return admission.Allowed()
}
