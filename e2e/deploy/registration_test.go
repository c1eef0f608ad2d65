package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// notRegistered installs what kube-apiserver does not take as a webhook: helm
// fails, and all that an operator looks at says why, while the pods are ready.
// The next upgrade puts it right.
func (s *stand) notRegistered(t *testing.T) {
	s.awaitNoNamespace(t)
	admin := walkthrough.New(t, s.kubeconfig)
	n := s.startNode(t, cluster.Binary)
	good := admin.Installed(t)
	admin.Values(t, good+"webhooks: {matchConditions: [{name: wrong, expression: 'no such thing'}]}\nregistrationCheck: {timeoutSeconds: 10}\n")
	if printed, err := admin.Tries(t, "--create-namespace -f values.yaml"); err == nil {
		t.Errorf("got %s, want helm to fail", printed)
	}
	const why = `fastadmit.io" is invalid: webhooks[0].matchConditions[0].expression`
	cluster.Await(t, "an Event", func() error {
		if said := admin.Does(t, "reason=NotRegistered"); !strings.Contains(said, why) {
			return fmt.Errorf("got %s, want %s", said, why)
		}
		return nil
	})
	if said := s.MustKubectl(t, "", "describe", "deployment", "fastadmit", "-n", "fastadmit"); !strings.Contains(said, "NotRegistered") {
		t.Errorf("kubectl describe: got %s, want the Event", said)
	}
	if said := admin.Does(t, "helm status"); !strings.Contains(said, "STATUS: failed") {
		t.Errorf("got %s, want that the release failed", said)
	}
	if said := s.logOfJob(t, n); !strings.Contains(said, "after 10s, kube-apiserver does not call fastadmit as configured: ValidatingWebhookConfiguration fastadmit.io: there is none") {
		t.Errorf("got the Job's log %s, want what is missing", said)
	}
	for _, address := range s.opsAddresses(t) {
		if said := get(t, address+"/readyz?verbose"); !strings.Contains(said, "[-]registration failed without affecting readiness, ") || !strings.Contains(said, why) || !strings.HasSuffix(said, "\nok\n") {
			t.Errorf("got %s, want that it is ready and not registered", said)
		}
		if said := get(t, address+"/metrics"); !strings.Contains(said, "\nfastadmit_registered 0\n") {
			t.Errorf("got %s, want fastadmit_registered 0", said)
		}
	}
	admin.Values(t, good+"webhooks: {matchConditions: []}\nregistrationCheck: {timeoutSeconds: 60}\n")
	admin.Does(t, "--reset-then-reuse-values")
	if said, err := s.warning(t, admin); err != nil {
		t.Errorf("when helm says that it is upgraded: %v: %s", err, said)
	}
	for _, address := range s.opsAddresses(t) {
		if said := get(t, address+"/metrics"); !strings.Contains(said, "\nfastadmit_registered 1\n") {
			t.Error("got no fastadmit_registered 1")
		}
	}
	if said := s.MustKubectl(t, "", "get", "jobs", "-n", "fastadmit", "-o", "name"); said != "" {
		t.Errorf("got %s, want no Job behind", said)
	}
	admin.Does(t, "helm uninstall")
	s.removed(t)
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
}

// get returns what a pod serves, which must be 200.
func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s %s, %v", url, response.Status, body, err)
	}
	return string(body)
}

// opsAddresses returns where fastadmit's pods serve metrics and health.
func (s *stand) opsAddresses(t *testing.T) (all []string) {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods("fastadmit").List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fastadmit"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("got %d pods, %v, want some", len(pods.Items), err)
	}
	for i := range pods.Items {
		all = append(all, "http://127."+strings.TrimPrefix(pods.Items[i].Status.PodIP, "10.")+":8080")
	}
	return all
}

// logOfJob returns what the pod of the Job wrote, which failed.
func (s *stand) logOfJob(t *testing.T, n *node) string {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods("fastadmit").List(context.Background(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=fastadmit-registered"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("got %d pods of the Job, %v, want 1", len(pods.Items), err)
	}
	return string(content(t, filepath.Join(n.dir, string(pods.Items[0].UID), "log")))
}
