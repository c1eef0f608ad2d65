package webhook

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// kubectl checks how kubectl shows denials and warnings. It prints the reason and the message; the
// code is in its log.
func (s *stand) kubectl(t *testing.T) {
	namespace := s.namespace(t, "kubectl")
	s.mustCreate(t, pod(namespace, "c"))
	s.mustCreate(t, config(namespace, "kept", "webhook-e2e-test: webhook-disallow"))
	s.mutating(t, s.hook("/mutate/Echo"))
	s.validating(t, s.hook("/validate/AlwaysPullImages"), s.hook("/validate/DenyUnwanted"), s.hook("/validate/DenyAttach"))

	f := func(name, stdin, code, want string, arguments ...string) {
		t.Run(name, func(t *testing.T) {
			_, stderr, err := s.Kubectl(t, stdin, append([]string{"-n", namespace}, arguments...)...)
			if err == nil || last(stderr) != want {
				t.Errorf("got %v, %q, want %q", err, last(stderr), want)
			}
			_, stderr, _ = s.Kubectl(t, stdin, append([]string{"-n", namespace, "-v", "6"}, arguments...)...)
			if !strings.Contains(stderr, `status="`+code+`"`) {
				t.Errorf("got log %s, want code %s", stderr, code)
			}
		})
	}
	const forbidden, failed = "403 Forbidden", "500 Internal Server Error"
	unwanted := config(namespace, "c", "webhook-e2e-test: webhook-disallow")
	const why = `DenyUnwanted: configmaps "c" is forbidden: the data contains unwanted key and value`
	f("create", unwanted, forbidden,
		`Error from server (Forbidden): error when creating "STDIN": `+cluster.Prefix(1)+why, "create", "-f", "-")
	f("create-dry-run", unwanted, forbidden,
		`Error from server (Forbidden): error when creating "STDIN": `+cluster.Prefix(1)+why, "create", "--dry-run=server", "-f", "-")
	f("apply-server-side", unwanted, forbidden,
		`Error from server (Forbidden): `+cluster.Prefix(1)+why, "apply", "--server-side", "-f", "-")
	f("delete", "", forbidden,
		`Error from server (Forbidden): `+cluster.Prefix(1)+`DenyUnwanted: configmaps "kept" is forbidden: the data contains unwanted `+
			`key and value`,
		"delete", "configmap", "kept")
	f("label", "", forbidden,
		`Error from server (Forbidden): `+cluster.Prefix(1)+`DenyUnwanted: configmaps "kept" is forbidden: the data contains unwanted `+
			`key and value`,
		"label", "configmap", "kept", "a=b")
	f("invalid", config(namespace, "c", "invalid: x"), "422 Unprocessable Entity",
		`The ConfigMap "c" is invalid: data.invalid: Invalid value: "x": is not wanted`, "create", "-f", "-")
	f("attach", "", forbidden,
		`error: unable to upgrade connection: `+cluster.Prefix(2)+`DenyAttach: pods "p" is forbidden: attaching to pod `+
			`'to-be-attached-pod' is not allowed`,
		"attach", "p")
	f("code-without-reason", strings.ReplaceAll(pod(namespace, "c"), "image: i", `image: "i:v1"`), failed,
		`Error from server: error when creating "STDIN": `+cluster.Prefix(0)+
			`AlwaysPullImages: pods "p" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "IfNotPresent": supported `+
			`values: "Always"`,
		"create", "-f", "-")

	t.Run("warning", func(t *testing.T) {
		stdout, stderr, err := s.Kubectl(t, config(namespace, "fine", "k: v"), "create", "-f", "-")
		const want = "Warning: mutate CREATE configmaps fine admission.k8s.io/v1 dryRun=false user=admin extra=\n"
		if err != nil || stderr != want || stdout != "configmap/fine created\n" {
			t.Errorf("got %v, %q and %q, want %q", err, stdout, stderr, want)
		}
	})
}

// last returns the last line.
func last(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return text[strings.LastIndex(text, "\n")+1:]
}
