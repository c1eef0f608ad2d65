package behind

import (
	"net"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// prefix is the prefix of the labels and annotations that controllerruntime reads.
const prefix = "behind.example.com/"

// answered selects objects that ask for an answer, and others selects those that do not. If two
// webhooks deny an object, in-tree may answer with either denial.
var (
	answered = &metav1.LabelSelector{MatchLabels: map[string]string{prefix + "answered": "true"}}
	others   = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: prefix + "answered", Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
)

// webhooks are the configurations of controllerruntime at that URL.
func webhooks(url string, ca []byte) configurations {
	client := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new(url + path), CABundle: ca}
	}
	pods := cluster.Rules("*", "", "v1", "pods", "pods/status", "pods/ephemeralcontainers", "pods/eviction")
	deployments := cluster.Rules("*", "apps", "v1", "deployments", "deployments/scale")
	configMaps := cluster.Rules("*", "", "v1", "configmaps")
	none, versions := new(admissionregistrationv1.SideEffectClassNone), []string{"v1"}
	mutating := func(name, path string, rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: name + ".default.example.com", ClientConfig: client(path), Rules: rules, SideEffects: none,
			AdmissionReviewVersions: versions,
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
		}
	}
	validating := func(name, path string, rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name + ".validate.example.com", ClientConfig: client(path), Rules: rules, SideEffects: none,
			AdmissionReviewVersions: versions,
			ObjectSelector:          others,
		}
	}
	c := configurations{
		mutating: &admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
			ObjectMeta: metav1.ObjectMeta{Name: "controllerruntime"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				mutating("pods", "/mutate--v1-pod", pods),
				mutating("deployments", "/mutate-apps-v1-deployment", deployments),
				mutating("configmaps", "/mutate--v1-configmap", configMaps),
				mutating("answers", "/answer-mutate", cluster.Everything()),
			},
		},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
			ObjectMeta: metav1.ObjectMeta{Name: "controllerruntime"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{
				validating("pods", "/validate--v1-pod", pods),
				validating("deployments", "/validate-apps-v1-deployment", deployments),
				validating("configmaps", "/validate--v1-configmap", configMaps),
				validating("answers", "/answer-validate", cluster.Everything()),
			},
		},
	}
	c.mutating.Webhooks[2].MatchConditions = []admissionregistrationv1.MatchCondition{
		{Name: "wanted", Expression: "object == null || !('" + prefix + "skip' in object.metadata.?labels.orValue({}))"},
	}
	c.mutating.Webhooks[3].ObjectSelector, c.validating.Webhooks[3].ObjectSelector = answered, answered
	return c
}

// TestControllerRuntime compares both sides with a webhook of controller-runtime.
func TestControllerRuntime(t *testing.T) {
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	first := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "itself", Prefix: "itself"})
	address := testserver.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Start(t, "controllerruntime", nil, cluster.Built("controllerruntime"), "-host", host, "-port", port,
		"-cert-dir", certificate(t, authority, host), "-kubeconfig", first.Kubeconfig(t))
	s := start(t, etcd, authority, first, webhooks("https://"+address, authority.PEM))
	s.await(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ready"},"data":{"password":"x"}}`,
		"passwords belong into Secrets")
	s.await(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ready","annotations":{"`+prefix+`default":"refuse"}},`+
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"no default for this pod")
	g := newGenerator(t)
	g.forControllerRuntime(t)
	s.compare(t, "controller-runtime", g)
}
