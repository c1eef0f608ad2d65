package deploy

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// calledWebhook is a webhook that does not answer; the test does not need its answer.
const calledWebhook = `apiVersion: webhooks.fastadmit.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: theirs}
webhooks:
- name: pods.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
`

// webhooks installs the chart with other projects' webhook configurations as custom resources.
func (s *stand) webhooks(t *testing.T) {
	s.awaitNoNamespace(t)
	s.startNode(t, cluster.Binary)
	admin := walkthrough.New(t, s.kubeconfig)
	admin.Values(t, "shutdownDelaySeconds: 2\nshutdownIdleSeconds: 0\n"+
		admin.Documented(t, "yaml", "webhookConfigurations:\n", "customResources: true"))
	admin.Does(t, "--create-namespace -f values.yaml")
	s.MustKubectl(t, calledWebhook, "apply", "-f", "-")
	ready := regexp.MustCompile(`(?m)^theirs +True `)
	cluster.Await(t, "a webhook that is ready", func() error {
		if said := admin.Does(t, "kubectl get mutatingwebhookconfigurations.webhooks.fastadmit.io"); !ready.MatchString(said) {
			return fmt.Errorf("got %s", said)
		}
		return nil
	})
	s.MustKubectl(t, calledWebhook, "delete", "-f", "-")
	admin.Does(t, "helm uninstall")
	s.removed(t)
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
}
