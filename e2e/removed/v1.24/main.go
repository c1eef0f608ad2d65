// The command v1.24 answers AdmissionReviews as the admission plugin PodSecurityPolicy of
// Kubernetes v1.24 would, the last release that had it. Its argument is the plugin's name. It uses
// the PodSecurityPolicies among the objects. Package removed says what it reads and writes.
//
// The names of policies say who may use them: see mayUse.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

	"github.com/fastadmit/fastadmit/e2e/removed"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

func main() {
	if len(os.Args) != 2 || os.Args[1] != podsecuritypolicy.PluginName {
		log.Fatalf("got arguments %q, want %s", os.Args[1:], podsecuritypolicy.PluginName)
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// A plugin is upstream's, and the store of the policies that it reads.
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

// mayUse says who may use a policy, by the first letter of its name:
//   - a: everyone
//   - p: everyone, by a rule for the API group policy
//   - e: everyone, by a rule for the API group extensions
//   - s: service accounts
//   - u: users that are no service accounts
//   - k: everyone in the namespace kube-system
//
// Nobody may use a policy with another name.
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

func run() error {
	p, err := newPlugin()
	if err != nil {
		return err
	}
	return removed.Serve(p.add, func(r *admissionv1.AdmissionRequest, phase string) (any, error) {
		return p.ask(r, phase == "mutate")
	})
}

// add adds an object that is a PodSecurityPolicy.
func (p *plugin) add(kind string, object []byte) error {
	if kind != "PodSecurityPolicy" {
		return nil
	}
	policy := new(policyv1beta1.PodSecurityPolicy)
	if err := json.Unmarshal(object, policy); err != nil {
		return err
	}
	defaults.SetObjectDefaults_PodSecurityPolicy(policy)
	return p.policies.Add(policy)
}

// podOf decodes a pod. It returns nil if there is none.
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

// recorded are attributes that record the annotations of the audit event.
type recorded struct {
	admission.Attributes
	annotations map[string]string
}

func (r *recorded) AddAnnotation(key, value string) error {
	r.annotations[strings.TrimPrefix(key, "podsecuritypolicy.policy.k8s.io/")] = value
	return nil
}

func (p *plugin) ask(r *admissionv1.AdmissionRequest, mutates bool) (*removed.Answer, error) {
	a := new(removed.Answer)
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
	var oldObject runtime.Object // stays nil without an old pod, which a nil pointer in it would not be
	if old != nil {
		synchronize(old, mutates)
		oldObject = old
	}
	attributes := &recorded{admission.NewAttributesRecord(pod, oldObject, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), "", admission.Operation(r.Operation), nil, *r.DryRun,
		&user.DefaultInfo{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}), make(map[string]string)}
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

// synchronize sets the pod's seccomp annotation from its field, as the API server of this release
// does when it stores a pod. If translates is set, fields that are missing are set from
// annotations; otherwise annotations are removed first. Later releases read only the fields, so a
// field wins over its annotation.
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
			return true // the plugin prefers the field
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
