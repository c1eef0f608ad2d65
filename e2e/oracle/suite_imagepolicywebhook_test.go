package oracle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/e2e/imagebackend"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// ofScheme matches the name of a Go variable in a message about an answer of the wrong kind.
var ofScheme = regexp.MustCompile(` in scheme "[^"]*"`)

func imagePolicySuite() suite {
	var variants []variant
	for _, more := range []string{"", ", defaultAllow: true", ", allowTTL: -1, denyTTL: -1", ", denyTTL: -1, defaultAllow: true"} {
		variants = append(variants, variant{
			about: more, options: handlers.DefaultOptions(),
			config: fmt.Sprintf("imagePolicy: {kubeConfigFile: %q, retryBackoff: 1%s}", imagebackend.Shared().Kubeconfig, more),
		})
	}
	return suite{
		name: "ImagePolicyWebhook", generate: (*generator).withImages, variants: variants, denies: true,
		background: true, // connections outlive cases
		message:    func(message string) string { return ofScheme.ReplaceAllString(message, "") },
	}
}

// withImages generates a request about a pod with annotations for the backend.
func (g *generator) withImages() *oracle.Case {
	c := g.pod()
	if c.Kind == podKind && g.in(6) {
		c.Subresource = "ephemeralcontainers"
	}
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		pod, ok := object.(*corev1.Pod)
		if !ok || g.in(3) {
			continue
		}
		if g.in(2) { // an image of an earlier question
			pod.Spec.Containers = []corev1.Container{{Image: pick(g, "a", "b", "c", "d", "e", "f", "g", "h")}}
			pod.Spec.InitContainers, pod.Annotations = nil, nil
		}
		for range g.IntN(3) {
			if pod.Annotations == nil {
				pod.Annotations = make(map[string]string)
			}
			key := pick(g, "ticket.image-policy.k8s.io/break-glass", "a.image-policy.k8s.io/", "image-policy.k8s.io/a",
				"x.image-policy.k8s.io/é<\n",
				"a.image-policy.k8s.io", ".image-policy.k8s.io/", "A.Image-Policy.k8s.io/b", "example.com/a.image-policy.k8s.io/b")
			pod.Annotations[key] = pick(g, "", "1", "é<&>", strings.Repeat("x", 4000))
		}
	}
	return c
}

// TestImagePolicyConfigurations compares which configurations both sides accept.
func TestImagePolicyConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "ImagePolicyWebhook", Test: "configurations"}
	f := accepts(t, &row)
	good := imagebackend.Shared().Kubeconfig
	with := func(more string) string { return fmt.Sprintf("imagePolicy: {kubeConfigFile: %q%s}", good, more) }
	f("", "")
	f("rubbish", "")
	f(with(""), "")
	for _, name := range []string{"allowTTL", "denyTTL", "retryBackoff"} {
		for _, value := range []string{"0", "1", "-1", "-2", "1800", "1801", "300000", "300001", "'1'", "1.5", "1s", "null",
			"9223372036854775807", "9223372036854775808"} {
			f(with(", "+name+": "+value), "")
		}
	}
	f(with(", defaultAllow: 'true'"), "")
	f(with(", defaultAllow: null"), "")
	f(fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q}}`, good), "")
	f(with(", allowttl: 1"), "fields are spelled as documented")
	f(with(", other: 1"), "an unknown field is an error")
	f(with(", allowTTL: 1, allowTTL: 2"), "a duplicate field is an error")
	f("imagePolicy: {kubeConfigFile: /nowhere}", "")

	written := 0
	kubeconfig := func(content, listed string) {
		t.Helper()
		written++
		name := filepath.Join(filepath.Dir(good), fmt.Sprint("kubeconfig-", written))
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f(fmt.Sprintf("imagePolicy: {kubeConfigFile: %q}", name), listed)
	}
	const server = "https://admission.example.com"
	whole := fmt.Sprintf(imagebackend.Format, server)
	kubeconfig(whole, "")
	kubeconfig(strings.Replace(whole, "current-context: backend", "", 1), "") // as upstream's TestNewFromConfig
	kubeconfig(strings.Replace(whole, "current-context: backend", "current-context: other", 1), "")
	kubeconfig(strings.Replace(whole, "certificate-authority: ca.crt", "certificate-authority: a bad certificate path", 1), "")
	kubeconfig(strings.Replace(whole, "clusters: [", "clusters: [{name: other, cluster: {server: x, certificate-authority: a bad "+
		"certificate path}}, ", 1), "")
	kubeconfig(strings.Replace(whole, "certificate-authority: ca.crt", "certificate-authority: client.key", 1), "")
	kubeconfig(strings.Replace(whole, "client-key: client.key", "client-key: ca.crt", 1),
		"an invalid client key is an error of the configuration, in-tree of every call")
	kubeconfig(strings.Replace(whole, "client-key: client.key", "client-key: client.key, client-key-data: YQ==", 1), "")
	kubeconfig(strings.Replace(whole, "certificate-authority: ca.crt", "insecure-skip-tls-verify: true", 1), "")
	kubeconfig(strings.Replace(whole, "certificate-authority: ca.crt", "certificate-authority: ca.crt, insecure-skip-tls-verify: true",
		1), "")
	kubeconfig(strings.Replace(whole, server, "", 1), "")
	kubeconfig(strings.Replace(whole, server, "not a URL:", 1), "")
	kubeconfig(strings.Replace(whole, server, server+"/a/path?query=1", 1), "")
	kubeconfig("rubbish", "")
	kubeconfig("{}", "")
	mustWrite(t, row)
}
