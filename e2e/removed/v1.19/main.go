// The command v1.19 answers AdmissionReviews as an admission plugin of Kubernetes
// v1.19 would, the last release that had it: PodPreset, whose name is the argument. It
// reads from standard input the objects that there are, of which it knows PodPresets,
// and then reviews. It writes a line for each review: an answer as package oracle
// reads it.
//
// It is a process of its own because no two releases of Kubernetes can be linked into
// one.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
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
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

func main() {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false"}); err != nil {
		log.Fatal(err)
	}
	if len(os.Args) != 2 || os.Args[1] != podpreset.PluginName {
		log.Fatalf("got arguments %q, want %s", os.Args[1:], podpreset.PluginName)
	}
	if err := run(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// An answer is what comes of a review: the object before and after as this release
// knows it.
type answer struct {
	Status        *metav1.Status
	Before, After *corev1.Pod
	Warnings      []string
}

func run(in io.Reader, out io.Writer) error {
	known := presets{}
	plugin := podpreset.NewPlugin()
	plugin.SetExternalKubeInformerFactory(factory{informers.NewSharedInformerFactory(nil, 0), known})
	plugin.SetReadyFunc(func() bool { return true })
	objects, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var raw json.RawMessage
		if err := objects.Decode(&raw); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var object metav1.TypeMeta
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		switch object.Kind {
		case "PodPreset":
			preset := new(settingsv1alpha1.PodPreset)
			if err := json.Unmarshal(raw, preset); err != nil {
				return err
			}
			settingsdefaults.SetObjectDefaults_PodPreset(preset)
			known[preset.Namespace] = append(known[preset.Namespace], preset)
		case "AdmissionReview":
			var review struct {
				admissionv1.AdmissionReview
				Phase string `json:"phase"`
			}
			if err := json.Unmarshal(raw, &review); err != nil {
				return err
			}
			a := new(answer)
			if review.Phase == "mutate" {
				var err error
				if a, err = ask(plugin, review.Request); err != nil {
					return err
				}
			}
			if err := answers.Encode(a); err != nil {
				return err
			}
		}
	}
}

func ask(plugin *podpreset.Plugin, r *admissionv1.AdmissionRequest) (*answer, error) {
	if !plugin.Handles(admission.Operation(r.Operation)) || *r.RequestResource != pods || len(r.Object.Raw) == 0 {
		return &answer{}, nil
	}
	pod, a := new(corev1.Pod), new(answer)
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

// conflicts finds in the log which presets were not applied, and the first reason. The
// name of a pod that was not checked yet may have lines in it.
var conflicts = regexp.MustCompile(`conflict occurred while applying podpresets: (\S+) on pod: (?s:.*?) err: [\[]*(merging (?:env|volumes|volume mounts) for \S+ has a conflict on .*): \n`)

func external(internal *core.Pod) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	return pod, legacyscheme.Scheme.Convert(internal.DeepCopy(), pod, nil)
}

// presets are those of each namespace. They are listed by name: the lister of an
// informer has them in any order.
type presets map[string][]*settingsv1alpha1.PodPreset

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
