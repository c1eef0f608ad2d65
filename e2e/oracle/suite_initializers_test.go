package oracle_test

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

const initializerConfigurations = `{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"b"},"initializers":[
 {"name":"third.example.com","rules":[{"apiGroups":[""],"apiVersions":["*"],"resources":["pods","configmaps"]}]}]},
{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"a"},"initializers":[
 {"name":"first.example.com","rules":[{"apiGroups":["","apps"],"apiVersions":["v1"],"resources":["*"]}]},
 {"name":"never.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]},{"apiGroups":["apps"],` +
	`"apiVersions":["*"],"resources":["*"]}]},
 {"name":"none.example.com"},
 {"name":"both.example.com","rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["pods"]},{"apiGroups":[""],` +
	`"apiVersions":["v1"],"resources":["*/*"]}]}]}]}`

// bobInitializes allows only bob to initialize objects.
type bobInitializes struct{}

func (bobInitializes) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "bob" && a.GetVerb() == "initialize" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "denied", nil
}

// initializersSuite is the suite of Initializers. Its access reviews need connections, which
// cannot be in a bubble. Creations that only fastadmit validates are in the plugin's own
// tests.
func initializersSuite() suite {
	return suite{
		name: "Initializers", generate: (*generator).initialized, denies: true, changes: true, background: true,
		removed: "../.cache/kubernetes-v1.13", commandConfig: initializerConfigurations,
		authorizer: func(*testing.T) authorizer.UnconditionalAuthorizer { return bobInitializes{} },
		variants: []variant{{options: handlers.DefaultOptions(), alike: true, world: func(*generator) oracle.World {
			return oracle.World{Authorizer: bobInitializes{}}
		}}},
		wrap: func(p admission.Plugin) admission.Plugin {
			made := p.New
			p.New = func(setup admission.Setup) (admission.Handler, error) {
				setup.Manifests = []admission.File{{Name: "initializers.yaml", Content: []byte(initializerConfigurations)}}
				h, err := made(setup)
				validate := h.Validate
				h.Validate = func(ctx context.Context, review *codec.Review) admission.Result {
					if review.Operation() == codec.Create {
						return admission.Allowed()
					}
					return validate(ctx, review)
				}
				return h, err
			}
			return p
		},
	}
}

// initialized generates a write of an object that may have a list of initializers.
func (g *generator) initialized() *oracle.Case {
	if g.in(12) {
		c := g.other()
		c.User = g.initializes()
		return c
	}
	var object func() runtime.Object
	c := g.request(g.writes(), podKind, pods)
	object = func() runtime.Object { return g.listed(g.aPod()) }
	switch g.IntN(3) {
	case 0:
		c = g.request(g.writes(), appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithResource("deployments"))
		object = func() runtime.Object { return g.listed(&appsv1.Deployment{ObjectMeta: g.metadata()}) }
	case 1:
		c = g.request(g.writes(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps"))
		object = func() runtime.Object { return g.listed(&corev1.ConfigMap{ObjectMeta: g.metadata()}) }
	}
	g.write(c, object(), object)
	c.User = g.initializes()
	return c
}

func (g *generator) initializes() user.DefaultInfo {
	return user.DefaultInfo{Name: pick(g, "alice", "bob", "system:node:n1")}
}

// listed sets a list in an object, or none. It is never the configured one.
func (g *generator) listed(object runtime.Object) runtime.Object {
	m := object.(metav1.Object)
	annotations := map[string]string{}
	if g.in(6) {
		annotations["kubernetes.io/config.mirror"] = g.word()
	}
	pod, isPod := object.(*corev1.Pod)
	if isPod {
		for range g.IntN(3) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: pick(g, "", "x", "example.com/y",
				"initializers.fastadmit.io/mine.example.com", "initializers.fastadmit.io/../x", "initializers.fastadmit.io/%2F")})
		}
		if g.in(4) {
			annotations["initializers.fastadmit.io/pending"] = ""
		}
	} else if g.in(2) {
		annotations["initializers.fastadmit.io/pending"] = pick(g, "", "", "mine.example.com", "a/b,..,%2F", ",")
	}
	if len(annotations) > 0 {
		m.SetAnnotations(annotations)
	}
	return object
}
