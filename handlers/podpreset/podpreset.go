// Package podpreset is the admission plugin PodPreset.
//
// It adds environment variables, volumes and mounts to new pods with certain labels.
// Settings that many pods share, such as the address of a database and its credentials, are
// then in one place.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podpreset v1.19.16, the last
// release that had it.
package podpreset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

const (
	annotationPrefix = "podpreset.admission.kubernetes.io/"

	// addedMax is how many bytes presets may add to the containers of a pod:
	// kube-apiserver's limit for a request (k8s.io/apiserver pkg/server/config.go
	// MaxRequestBodyBytes), which is more than etcd's.
	addedMax = 3 << 20
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "PodPreset",
		Summary:     "adds environment variables, volumes and mounts of PodPresets to pods",
		Rules:       []admission.Rule{admission.NewRule("", "v1", "pods", codec.Create)},
		Mutates:     true,
		LastRelease: "1.19",
		Needs:       []cluster.Need{PodPresets.Watched()},
		New:         newHandler,
	}
}

type plugin struct {
	known     *cluster.Objects[*PodPreset]
	files     map[string][]*PodPreset // by namespace, sorted by name
	conflicts *metrics.Counter
	ignored   *metrics.Counter
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	if err := documents.ReadConfig(setup.Config, "PodPresetConfiguration"); err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{
		known: PodPresets.In(setup.Cluster), files: make(map[string][]*PodPreset),
		conflicts: setup.Cluster.Metrics().GetOrCreateCounter(`fastadmit_podpreset_unapplied_total{reason="conflict"}`),
		ignored:   setup.Cluster.Metrics().GetOrCreateCounter(`fastadmit_podpreset_unapplied_total{reason="invalid"}`),
	}
	gvk := PodPresets.GroupVersionKind()
	reader := documents.Reader{APIVersions: []string{gvk.GroupVersion().String()}, Kinds: []string{gvk.Kind}, Add: p.addFile}
	if errs := reader.Read(setup.Manifests); errs != nil {
		return admission.Handler{}, utilerrors.NewAggregate(errs)
	}
	return admission.Handler{Admit: p.admit}, nil
}

// addFile adds the preset in a file.
func (p *plugin) addFile(_ *admission.File, _ string, content []byte) []error {
	if errs := documents.Decode(content, new(documents.Object[Spec])); errs != nil { // because UnmarshalJSON reports no errors
		return errs
	}
	preset := new(PodPreset)
	if err := preset.UnmarshalJSON(content); err != nil {
		return []error{err}
	}
	if err := preset.check(); err != nil {
		return []error{err}
	}
	list := p.files[preset.Namespace]
	at, found := slices.BinarySearchFunc(list, preset.Name, func(p *PodPreset, name string) int { return strings.Compare(p.Name, name) })
	if found {
		return []error{fmt.Errorf("PodPreset %q: duplicate name in namespace %q", preset.Name, preset.Namespace)}
	}
	p.files[preset.Namespace] = slices.Insert(list, at, preset)
	return nil
}

// presets returns the presets of a namespace, sorted by name. A preset of a file replaces a
// preset of the cluster with the same name.
func (p *plugin) presets(namespace string) ([]*PodPreset, error) {
	if namespace == "" {
		return nil, nil // there are no pods outside of namespaces, and List would return all
	}
	known, err := p.known.List(namespace)
	files := p.files[namespace]
	if len(files) == 0 || err != nil {
		return known, err
	}
	byName := make(map[string]*PodPreset, len(known)+len(files))
	for _, preset := range slices.Concat(known, files) {
		byName[preset.Name] = preset
	}
	all := make([]*PodPreset, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all, nil
}

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	presets, err := p.presets(review.Namespace())
	if err != nil {
		return admission.Errored(err)
	}
	if len(presets) == 0 {
		return admission.Allowed()
	}
	annotations := review.Object.Get("metadata", "annotations")
	if annotations.Get(corev1.MirrorPodAnnotationKey).Exists() || annotations.Get(annotationPrefix+"exclude").EqualString("true") {
		return admission.Allowed()
	}
	presets = p.matching(review, presets)
	if len(presets) == 0 {
		return admission.Allowed()
	}
	if err := checkSize(review, presets); err != nil {
		return admission.Denied(err)
	}
	return admission.AdmitTyped(func(_ context.Context, review *codec.Review, pod, _ *corev1.Pod) admission.Result {
		if conflict := apply(pod, presets); conflict != "" {
			p.conflicts.Inc()
			review.Response.Warn(fmt.Sprintf("conflict occurred while applying podpresets: %s: %s", namesOf(presets), conflict))
		}
		return admission.Allowed()
	})(ctx, review)
}

// namesShown is the maximum number of bytes of names in a warning. The rest of the 4096
// that all warnings may have is for the conflict.
const namesShown = 2048

func namesOf(presets []*PodPreset) string {
	var names strings.Builder
	for i, preset := range presets {
		if names.Len()+1+len(preset.Name) > namesShown {
			names.WriteString(",...")
			break
		}
		if i > 0 {
			names.WriteByte(',')
		}
		names.WriteString(preset.Name)
	}
	return names.String()
}

// matching returns the presets that select the pod.
func (p *plugin) matching(review *codec.Review, presets []*PodPreset) (matching []*PodPreset) {
	set := make(labels.Set)
	for name, value := range review.Object.Get("metadata", "labels").Members() {
		set[name] = value.String()
	}
	for _, preset := range presets {
		switch {
		case preset.fault != nil:
			p.ignored.Inc()
			review.Response.Warn(fmt.Sprintf("PodPreset %s is ignored: %v", preset.Name, preset.fault))
		case preset.selector.Matches(set):
			matching = append(matching, preset)
		}
	}
	return matching
}

// checkSize denies a pod if presets would make it larger than any pod that can be stored. It
// is called before presets are applied, because many small presets, times many containers,
// can need a lot of memory.
func checkSize(review *codec.Review, presets []*PodPreset) error {
	containers := review.Object.Get("spec", "initContainers").Len() + review.Object.Get("spec", "containers").Len()
	size := 0
	for _, preset := range presets {
		size += preset.bytes
	}
	if containers > 1 && size*containers > addedMax {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the PodPresets %s add up to %d bytes to each of %d "+
			"containers: want at most %d bytes in all",
			namesOf(presets), size, containers, addedMax))
	}
	return nil
}
