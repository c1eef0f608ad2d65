// The command v1.24 answers AdmissionReviews as an admission plugin of Kubernetes
// v1.24 would, the last release that had it: PodSecurityPolicy, whose name is the
// argument. It reads from standard input the objects that there are, of which it knows
// PodSecurityPolicies, and then reviews. It writes a line for each review: an answer as
// package oracle reads it.
//
// The names of policies say who may use them: see mayUse.
//
// It is a process of its own because no two releases of Kubernetes can be linked into
// one.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	defaults "k8s.io/kubernetes/pkg/apis/policy/v1beta1"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecuritypolicy"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

func main() {
	if len(os.Args) != 2 || os.Args[1] != podsecuritypolicy.PluginName {
		log.Fatalf("got arguments %q, want %s", os.Args[1:], podsecuritypolicy.PluginName)
	}
	if err := run(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// A plugin is the plugin, and where its policies are.
type plugin struct {
	*podsecuritypolicy.Plugin
	policies interface{ Add(any) error }
}

func newPlugin() (*plugin, error) {
	plugins := admission.NewPlugins()
	podsecuritypolicy.Register(plugins)
	factory := informers.NewSharedInformerFactory(nil, 0)
	made, err := plugins.InitPlugin(podsecuritypolicy.PluginName, bytes.NewReader(nil),
		initializer.New(nil, factory, authorizer.AuthorizerFunc(mayUse), nil))
	if err != nil {
		return nil, err
	}
	p, err := find(made)
	if err != nil {
		return nil, err
	}
	p.SetReadyFunc(func() bool { return true })
	return &plugin{p, factory.Policy().V1beta1().PodSecurityPolicies().Informer().GetStore()}, nil
}

func find(made admission.Interface) (*podsecuritypolicy.Plugin, error) {
	p, ok := made.(*podsecuritypolicy.Plugin)
	if !ok {
		return nil, fmt.Errorf("got a %T, want the plugin", made)
	}
	return p, nil
}

// mayUse says who may use a policy, by the letter in front of its name: "a" all, "p" all
// by the group policy, "e" all by the group extensions, "s" service accounts, "u" who is
// none, "k" all in kube-system; the others nobody may.
func mayUse(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	_, isAccount := strings.CutPrefix(a.GetUser().GetName(), "system:serviceaccount:")
	may := false
	switch name := a.GetName(); {
	case a.GetVerb() != "use" || a.GetResource() != "podsecuritypolicies" || a.GetAPIVersion() != "*" || name == "":
	case name[0] == 'a':
		may = true
	case name[0] == 'p':
		may = a.GetAPIGroup() == "policy"
	case name[0] == 'e':
		may = a.GetAPIGroup() == "extensions"
	case name[0] == 's':
		may = isAccount
	case name[0] == 'u':
		may = !isAccount
	case name[0] == 'k':
		may = a.GetNamespace() == "kube-system"
	}
	if may {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// An answer is what comes of a review: the object before and after as this release
// knows it.
type answer struct {
	Status        *metav1.Status
	Before, After *corev1.Pod
	Annotations   map[string]string
}

func run(in io.Reader, out io.Writer) error {
	p, err := newPlugin()
	if err != nil {
		return err
	}
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
		case "PodSecurityPolicy":
			policy := new(policyv1beta1.PodSecurityPolicy)
			if err := json.Unmarshal(raw, policy); err != nil {
				return err
			}
			defaults.SetObjectDefaults_PodSecurityPolicy(policy)
			if err := p.policies.Add(policy); err != nil {
				return err
			}
		case "AdmissionReview":
			var review struct {
				admissionv1.AdmissionReview
				Phase string `json:"phase"`
			}
			if err := json.Unmarshal(raw, &review); err != nil {
				return err
			}
			a, err := p.ask(review.Request, review.Phase == "mutate")
			if err != nil {
				return err
			}
			if err := answers.Encode(a); err != nil {
				return err
			}
		}
	}
}

// podOf decodes a pod. Nil if there is none.
func podOf(raw []byte) (*core.Pod, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	pod, internal := new(corev1.Pod), new(core.Pod)
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, err
	}
	return internal, legacyscheme.Scheme.Convert(pod, internal, nil)
}

func external(internal *core.Pod) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	return pod, legacyscheme.Scheme.Convert(internal.DeepCopy(), pod, nil)
}

// recorded are attributes whose annotations can be read.
type recorded struct {
	admission.Attributes
	annotations map[string]string
}

func (r *recorded) AddAnnotation(key, value string) error {
	r.annotations[strings.TrimPrefix(key, "podsecuritypolicy.policy.k8s.io/")] = value
	return nil
}

func (p *plugin) ask(r *admissionv1.AdmissionRequest, mutates bool) (*answer, error) {
	a := new(answer)
	if !p.Handles(admission.Operation(r.Operation)) || *r.RequestResource != pods || len(r.Object.Raw) == 0 || r.RequestSubResource != "" {
		return a, nil
	}
	pod, err := podOf(r.Object.Raw)
	if err != nil {
		return nil, err
	}
	old, err := podOf(r.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	if a.Before, err = external(pod); err != nil {
		return nil, err
	}
	given := make(map[string]string)
	for key, value := range pod.Annotations {
		given[key] = value
	}
	synchronize(pod, mutates)
	var oldObject *core.Pod
	if old != nil {
		synchronize(old, mutates)
		oldObject = old
	}
	attributes := &recorded{admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), "", admission.Operation(r.Operation), nil, *r.DryRun,
		&user.DefaultInfo{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}), make(map[string]string)}
	if oldObject != nil {
		attributes.Attributes = admission.NewAttributesRecord(pod, oldObject, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
			schema.GroupVersionResource(*r.RequestResource), "", admission.Operation(r.Operation), nil, *r.DryRun,
			&user.DefaultInfo{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups})
	}
	a.Annotations = attributes.annotations
	ask := p.Validate
	if mutates {
		ask = p.Admit
	}
	if err := ask(context.Background(), attributes, nil); err != nil {
		a.Status = responsewriters.ErrorToAPIStatus(err)
		return a, nil
	}
	if mutates && r.Operation == admissionv1.Create {
		synchronize(pod, true)
	} else if pod, err = podOf(r.Object.Raw); err != nil {
		return nil, err
	}
	for _, key := range seccompKeys(pod) {
		if value, ok := given[key]; ok {
			pod.Annotations[key] = value
		} else {
			delete(pod.Annotations, key)
		}
	}
	if len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	a.After, err = external(pod)
	return a, err
}

func seccompKeys(pod *core.Pod) []string {
	keys := []string{core.SeccompPodAnnotationKey}
	podutil.VisitContainers(&pod.Spec, podutil.AllContainers, func(c *core.Container, _ podutil.ContainerType) bool {
		keys = append(keys, core.SeccompContainerAnnotationKeyPrefix+c.Name)
		return true
	})
	return keys
}

// synchronize makes the pod's annotation of seccomp what its field is, as the API server of
// this release does when it stores a pod, and where translates is true also fields of
// annotations. Later releases look at the fields alone, so these count where both are
// there, and without translating the annotations do not count at all.
func synchronize(pod *core.Pod, translates bool) {
	if !translates {
		for _, key := range seccompKeys(pod) {
			delete(pod.Annotations, key)
		}
	}
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = new(core.PodSecurityContext)
	}
	if field := pod.Spec.SecurityContext.SeccompProfile; field == nil {
		pod.Spec.SecurityContext.SeccompProfile = podutil.SeccompFieldForAnnotation(pod.Annotations[core.SeccompPodAnnotationKey])
	} else {
		if pod.Annotations == nil {
			pod.Annotations = make(map[string]string)
		}
		pod.Annotations[core.SeccompPodAnnotationKey] = podutil.SeccompAnnotationForField(field)
	}
	podutil.VisitContainers(&pod.Spec, podutil.AllContainers, func(c *core.Container, _ podutil.ContainerType) bool {
		if c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil {
			return true // which the plugin looks at first
		}
		if field := podutil.SeccompFieldForAnnotation(pod.Annotations[core.SeccompContainerAnnotationKeyPrefix+c.Name]); field != nil {
			if c.SecurityContext == nil {
				c.SecurityContext = new(core.SecurityContext)
			}
			c.SecurityContext.SeccompProfile = field
		}
		return true
	})
}
