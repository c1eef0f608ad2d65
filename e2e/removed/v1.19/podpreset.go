package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"sort"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	settingsv1alpha1 "k8s.io/api/settings/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/settings"
	settingsinformers "k8s.io/client-go/informers/settings/v1alpha1"
	listers "k8s.io/client-go/listers/settings/v1alpha1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	settingsdefaults "k8s.io/kubernetes/pkg/apis/settings/v1alpha1"
	"k8s.io/kubernetes/plugin/pkg/admission/podpreset"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

// runPodPreset writes what PodPreset did to each object. It uses the PodPresets among the objects.
func runPodPreset() error {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false"}); err != nil {
		return err
	}
	known := presets{}
	plugin := podpreset.NewPlugin()
	plugin.SetExternalKubeInformerFactory(factory{informers.NewSharedInformerFactory(nil, 0), known})
	plugin.SetReadyFunc(func() bool { return true })
	return removed.Serve(known.add, func(r *admissionv1.AdmissionRequest, phase string) (any, error) {
		if phase != "mutate" {
			return new(removed.Answer), nil
		}
		return askPodPreset(plugin, r)
	})
}

func askPodPreset(plugin *podpreset.Plugin, r *admissionv1.AdmissionRequest) (*removed.Answer, error) {
	if !plugin.Handles(admission.Operation(r.Operation)) || *r.RequestResource != pods || len(r.Object.Raw) == 0 {
		return &removed.Answer{}, nil
	}
	pod, a := new(corev1.Pod), new(removed.Answer)
	if err := json.Unmarshal(r.Object.Raw, pod); err != nil {
		return nil, err
	}
	internal := new(core.Pod)
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, err
	}
	var err error
	if a.Before, err = external(internal); err != nil {
		return nil, err
	}
	attributes := admission.NewAttributesRecord(internal, nil, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.RequestSubResource, admission.Operation(r.Operation), nil, *r.DryRun, nil)
	var logged bytes.Buffer
	klog.SetOutput(&logged)
	if err := plugin.Admit(context.Background(), attributes, nil); err != nil {
		a.Status = responsewriters.ErrorToAPIStatus(err)
		return a, nil
	}
	klog.Flush()
	if conflict := conflicts.FindStringSubmatch(logged.String()); conflict != nil {
		a.Warnings = []string{fmt.Sprintf("conflict occurred while applying podpresets: %s: %s", conflict[1], conflict[2])}
	}
	a.After, err = external(internal)
	return a, err
}

// conflicts finds in the log which presets were not applied, and the first reason. The pod's name
// may have newlines, because admission comes before validation.
var conflicts = regexp.MustCompile(`conflict occurred while applying podpresets: (\S+) on pod: (?s:.*?) err: ` +
	`[\[]*(merging (?:env|volumes|volume mounts) for \S+ has a conflict on .*): \n`)

func external(internal *core.Pod) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	return pod, legacyscheme.Scheme.Convert(internal.DeepCopy(), pod, nil)
}

// presets are the PodPresets of each namespace. They are listed by name, unlike by an informer,
// whose order is random.
type presets map[string][]*settingsv1alpha1.PodPreset

// add adds an object that is a PodPreset.
func (p presets) add(kind string, object []byte) error {
	if kind != "PodPreset" {
		return nil
	}
	preset := new(settingsv1alpha1.PodPreset)
	if err := json.Unmarshal(object, preset); err != nil {
		return err
	}
	settingsdefaults.SetObjectDefaults_PodPreset(preset)
	p[preset.Namespace] = append(p[preset.Namespace], preset)
	return nil
}

type (
	factory struct {
		informers.SharedInformerFactory
		known presets
	}
	group    struct{ known presets }
	informer struct {
		settingsinformers.PodPresetInformer
		known presets
	}
	lister struct {
		listers.PodPresetLister
		known presets
	}
	namespaced struct {
		listers.PodPresetNamespaceLister
		known []*settingsv1alpha1.PodPreset
	}
)

func (f factory) Settings() settings.Interface        { return group{f.known} }
func (g group) V1alpha1() settingsinformers.Interface { return g }
func (g group) PodPresets() settingsinformers.PodPresetInformer {
	return informer{informers.NewSharedInformerFactory(nil, 0).Settings().V1alpha1().PodPresets(), g.known}
}
func (i informer) Lister() listers.PodPresetLister { return lister{known: i.known} }
func (l lister) PodPresets(namespace string) listers.PodPresetNamespaceLister {
	return namespaced{known: l.known[namespace]}
}

func (n namespaced) List(labels.Selector) ([]*settingsv1alpha1.PodPreset, error) {
	sort.Slice(n.known, func(i, j int) bool { return n.known[i].Name < n.known[j].Name })
	return n.known, nil
}
