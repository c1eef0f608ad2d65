package callers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// TestForged registers a fastadmit that writes to the cluster with a path token,
// and sends it reviews that no API server sent.
func TestForged(t *testing.T) {
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	address := testserver.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.WriteFile(t, "config.yaml", fmt.Appendf(nil, `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [NamespaceAutoProvision, ResourceQuota]
registration: {namespace: fastadmit, clientConfig: {url: "https://%s"}}
`, address))
	ctx := context.Background()
	for _, name := range []string{"fastadmit", "made"} {
		if _, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f := cluster.RunFastadmit(t, cluster.Binary, "serve", "--bind-address", host, "--secure-port", port, "--metrics-bind-address",
		"127.0.0.1:0",
		"--kubeconfig", s.Kubeconfig(t), "--config", config, "--cert-secret-name", "certificate", "--cert-secret-namespace", "fastadmit")

	// The API server's review is accepted: a quota is charged.
	quota, err := s.Client.CoreV1().ResourceQuotas("made").Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("100")}}}, metav1.CreateOptions{})
	if err == nil {
		// This test has no controller, so it does what the controller would.
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard,
			Used: corev1.ResourceList{"count/configmaps": resource.MustParse("1")}}
		_, err = s.Client.CoreV1().ResourceQuotas("made").UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		quota, err := s.Client.CoreV1().ResourceQuotas("made").Get(ctx, "quota", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return quota.Status.Used.Name("count/configmaps", resource.DecimalSI).Value()
	}
	cluster.Await(t, "the quota to be charged", func() error {
		before := used()
		if err := create(s, "made"); err != nil {
			return err
		}
		if used() == before {
			return errors.New("it is not")
		}
		return nil
	})
	token := forge(t, s, f, used)

	// As SECURITY.md says about users whose calls fail.
	f.Stop(t)
	if err := cluster.WantError(create(s, "made"), "/"+token+"/"); err != nil {
		t.Errorf("kube-apiserver does not show the URL any more: %v", err)
	}
}

// create makes a ConfigMap.
func create(s *cluster.APIServer, namespace string) error {
	_, err := s.Client.CoreV1().ConfigMaps(namespace).Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
	return err
}

// forge sends reviews, without the path token and with it. It returns the token.
func forge(t *testing.T, s *cluster.APIServer, f *cluster.Fastadmit, used func() int64) (token string) {
	t.Helper()
	w, err := s.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), "fastadmit.io",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	registered, err := url.Parse(*w.Webhooks[0].ClientConfig.URL)
	if err != nil {
		t.Fatal(err)
	}
	token, _, _ = strings.Cut(strings.TrimPrefix(registered.Path, "/"), "/")
	made := func() bool {
		_, err := s.Client.CoreV1().Namespaces().Get(context.Background(), "forged", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	before, wrong := used(), strings.Repeat("a", len(token))
	for _, prefix := range []string{"", "/" + wrong, "/" + token + "a", "/" + token[1:], "//" + token, "/mutate/../" + token} {
		for _, path := range []string{"/mutate", "/mutate/fail", "/mutate/namespaceautoprovision", "/validate", "/validate/fail",
			"/validate/resourcequota"} {
			for _, namespace := range []string{"forged", "made"} {
				code, text := send(t, f.URL+prefix+path, namespace)
				if code != http.StatusUnauthorized || strings.Contains(text, token) {
					t.Errorf("%s: got %d %s, want 401 without the token", path, code, text)
				}
			}
		}
	}
	if made() || used() != before {
		t.Errorf("got namespace made %v and quota used %d, want nothing written (%d)", made(), used(), before)
	}
	// With the token the same reviews write, so they were valid.
	for path, namespace := range map[string]string{"/mutate/fail": "forged", "/validate/fail": "made"} {
		if code, text := send(t, f.URL+"/"+token+path, namespace); code != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
			t.Errorf("%s: got %d %s, want 200", path, code, text)
		}
	}
	if !made() || used() != before+1 {
		t.Errorf("got namespace made %v and quota used %d, want what whoever knows the token can do", made(), used())
	}
	if got := f.Metric(t, `fastadmit_refused_requests_total{code="401"}`); got < 6*6*2 {
		t.Errorf("got %d refusals counted, want 72 at least", got)
	}
	return token
}

// send sends a review of a new ConfigMap.
func send(t *testing.T, at, namespace string) (code int, text string) {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":%q}}`, namespace)
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Resource:        metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			RequestKind:     &metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			RequestResource: &metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Name:            "x", Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
			DryRun: new(false),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, at, bytes.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body.String()
}
