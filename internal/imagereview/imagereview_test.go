package imagereview

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

func policy(t testing.TB, rules string) *Policy {
	t.Helper()
	p := new(Policy)
	if err := yaml.UnmarshalStrict([]byte("rules: ["+rules+"]"), p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(field.NewPath("imageReview")); err != nil {
		t.Fatal(err)
	}
	return p
}

// question encodes an ImageReview as kube-apiserver does.
func question(t testing.TB, namespace string, images ...string) []byte {
	t.Helper()
	var review imagepolicyv1alpha1.ImageReview
	review.APIVersion, review.Kind = apiVersion, kind
	review.Spec.Namespace = namespace
	for _, image := range images {
		review.Spec.Containers = append(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// answered decodes the answer as kube-apiserver does.
func answered(t testing.TB, p *Policy, body []byte) imagepolicyv1alpha1.ImageReviewStatus {
	t.Helper()
	answer, err := p.Review(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	var review imagepolicyv1alpha1.ImageReview
	if err := json.Unmarshal(answer.AppendJSON(nil), &review); err != nil || review.Kind != kind || review.APIVersion != apiVersion {
		t.Fatalf("got %+v, %v", review, err)
	}
	return review.Status
}

// TestNamesOfServers uses all names of one registry.
func TestNamesOfServers(t *testing.T) {
	f := func(repository string, same, others []string) {
		t.Helper()
		refuses := policy(t, "{name: r, refusedRepositories: ["+repository+"]}")
		allows := policy(t, "{name: r, allowedRepositories: ["+repository+"]}")
		for _, image := range same {
			if answered(t, refuses, question(t, "shop", image)).Allowed || !answered(t, allows, question(t, "shop", image)).Allowed {
				t.Errorf("%s is not of %s, want it to be", image, repository)
			}
		}
		for _, image := range others {
			if !answered(t, refuses, question(t, "shop", image)).Allowed || answered(t, allows, question(t, "shop", image)).Allowed {
				t.Errorf("%s is of %s, want it not to be", image, repository)
			}
		}
	}
	f("ghcr.io/evil", []string{"ghcr.io/evil/x", "GHCR.IO/evil/x", "ghcr.io:443/evil/x", "Ghcr.Io:0443/evil/x:1", "ghcr.io/evil"},
		[]string{"ghcr.io:444/evil/x", "ghcr.io:80/evil/x", "ghcr.io/evilx", "xghcr.io/evil/x", "ghcr.io.example.com/evil/x"})
	f("docker.io", []string{"nginx", "docker.io/nginx", "index.docker.io/nginx", "registry-1.docker.io/library/nginx",
		"Registry-1.Docker.io:443/library/nginx", "DOCKER.IO/library/nginx", "registry.hub.docker.com/library/nginx"},
		[]string{"docker.io:5000/nginx", "mirror.docker.io.example.com/nginx"})
	f("'*.Example.com'", []string{"a.example.com/x", "A.EXAMPLE.COM:443/x"}, []string{"example.com/x", "a.example.com:5000/x"})
	f("Example.com:443/a", []string{"example.com/a", "example.com:443/a/b"}, []string{"example.com:5000/a"})
	f("'localhost:5000'", []string{"localhost:5000/a", "LOCALHOST:5000/a", "localhost:05000/a"}, []string{"localhost/a"})
}

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestRules tests which images a rule allows, and its reasons to refuse others.
func TestRules(t *testing.T) {
	f := func(rule, image, want string) {
		t.Helper()
		got := answered(t, policy(t, rule), question(t, "shop", image))
		if got.Allowed != (want == "") || !strings.Contains(got.Reason, want) {
			t.Errorf("%s, %s: got %+v, want %q", rule, image, got, want)
		}
		if _, named := got.AuditAnnotations["refused-by-rule"]; named != (want != "" && !strings.Contains(want, "invalid")) {
			t.Errorf("%s, %s: got audit annotations %q", rule, image, got.AuditAnnotations)
		}
	}
	allowed := `{name: r, allowedRepositories: [registry.example.com, "docker.io/library", docker.io/grafana/grafana, ` +
		`"*.gcr.io/distroless", "localhost:5000"]}`
	const refused = "is not one of the allowed repositories (rule r)"
	f(allowed, "nginx", "")
	f(allowed, "nginx:1.29", "")
	f(allowed, "docker.io/nginx", "")
	f(allowed, "index.docker.io/library/nginx", "")
	f(allowed, "nginx"+digest, "")
	f(allowed, "grafana/grafana", "")
	f(allowed, "grafana/grafana/extra:1", "")
	f(allowed, "grafana/grafana2", "docker.io/grafana/grafana2 "+refused)
	f(allowed, "grafana/graf", refused)
	f(allowed, "libraryfoo/nginx", refused)
	f(allowed, "registry.example.com/a/b/c:v1", "")
	f(allowed, "registry.example.com:444/a", refused)
	f(allowed, "xregistry.example.com/a", refused)
	f(allowed, "registry.example.com.evil.com/a", refused)
	f(allowed, "evil.com/registry.example.com/a", refused)
	f(allowed, "eu.gcr.io/distroless/base", "")
	f(allowed, "gcr.io/distroless/base", refused)
	f(allowed, "eu.gcr.io/other/base", refused)
	f(allowed, "localhost:5000/a", "")
	f(allowed, "localhost/a", refused)
	f(allowed, "", "invalid reference format")
	f(allowed, "Nginx", "invalid reference format: repository name (library/Nginx) must be lowercase")
	f(allowed, "nginx@sha256:00", "invalid")
	f(allowed, strings.Repeat("0", 64), "invalid")

	f(`{name: r, refusedRepositories: [docker.io]}`, "nginx", "docker.io/library/nginx is one of the refused repositories (rule r)")
	f(`{name: r, refusedRepositories: [docker.io]}`, "quay.io/nginx", "")
	f(`{name: r, requireDigest: true}`, "nginx:1.29", "image nginx:1.29 may not run: it is not named by its digest (rule r)")
	f(`{name: r, requireDigest: true}`, "nginx"+digest, "")
	f(`{name: r, requireDigest: true}`, "nginx:1"+digest, "")
	f(`{name: r, refusedTags: [latest, "*-dev"]}`, "nginx", "the tag latest is refused (rule r)")
	f(`{name: r, refusedTags: [latest, "*-dev"]}`, "nginx:latest", "the tag latest is refused")
	f(`{name: r, refusedTags: [latest, "*-dev"]}`, "nginx:1-dev", "the tag 1-dev is refused")
	f(`{name: r, refusedTags: [latest, "*-dev"]}`, "nginx:1", "")
	f(`{name: r, refusedTags: [latest, "*-dev"]}`, "nginx:latest"+digest, "")
	f(`{name: r, requireDigest: true, message: "See https://example.com"}`, "nginx", "(rule r): See https://example.com")
	f(`{name: a, requireDigest: true}, {name: b, refusedRepositories: [docker.io]}`, "nginx"+digest, "(rule b)")
	f(`{name: a, requireDigest: true}, {name: b, refusedRepositories: [docker.io]}`, "nginx", "(rule a)")
}

// TestNamespaces tests to which namespaces a rule applies.
func TestNamespaces(t *testing.T) {
	f := func(rule, namespace string, want bool) {
		t.Helper()
		if got := answered(t, policy(t, "{name: r, requireDigest: true, "+rule+"}"),
			question(t, namespace, "nginx")); got.Allowed == want {
			t.Errorf("%s, %s: got %+v, want the rule to be for it: %v", rule, namespace, got, want)
		}
	}
	f("", "shop", true)
	f("", "", true)
	f("namespaces: [shop]", "shop", true)
	f("namespaces: [shop]", "shop2", false)
	f(`namespaces: [a, "prod-*"]`, "prod-eu", true)
	f(`namespaces: ["*"], excludedNamespaces: ["kube-*"]`, "kube-system", false)
	f(`excludedNamespaces: ["kube-*"]`, "kube-system", false)
	f(`excludedNamespaces: ["kube-*"]`, "shop", true)
	if got := answered(t, policy(t, "{name: r, requireDigest: true, namespaces: [shop]}"), question(t, "other", "?")); !got.Allowed {
		t.Errorf("got %+v, want a namespace without rules to be let alone", got)
	}
}

// TestSeveral tests how many refused images a reason names.
func TestSeveral(t *testing.T) {
	p := policy(t, "{name: r, requireDigest: true}")
	for n, want := range map[int]string{0: "", refusalsMax - 1: "image i3 ", refusalsMax: "image i4 ", refusalsMax + 1: "; and 1 more"} {
		var images []string
		for i := range n {
			images = append(images, fmt.Sprint("i", i), "nginx"+digest)
		}
		got := answered(t, p, question(t, "shop", images...))
		if got.Allowed != (n == 0) || !strings.Contains(got.Reason, want) || strings.Contains(got.Reason, "image i5 ") ||
			strings.HasPrefix(got.Reason, ";") {
			t.Errorf("%d: got %+v, want %q", n, got, want)
		}
	}
}

// TestHostile tests long names and many containers.
func TestHostile(t *testing.T) {
	p := policy(t, "{name: r, allowedRepositories: [registry.example.com]}")
	long := strings.Repeat("a", 1<<20)
	for _, image := range []string{long, "docker.io/" + long, long + ".com/a", "nginx:" + long, "\x00", "a/../b", "a//b", "é",
		"%2F", "<script>"} {
		got := answered(t, p, question(t, long, image))
		if got.Allowed || len(got.Reason) > 2000 {
			t.Errorf("%.40s: got allowed %v and a reason of %d bytes, want a short refusal", image, got.Allowed, len(got.Reason))
		}
	}
	for n, want := range map[int]string{nameBytesMax - 1: "invalid", nameBytesMax: "invalid",
		nameBytesMax + 1: "its name has 1025 bytes, want at most 1024"} {
		if got := answered(t, p, question(t, "shop", strings.Repeat("/", n))); !strings.Contains(got.Reason, want) {
			t.Errorf("%d: got %+v, want %s", n, got, want)
		}
	}
	images := make([]string, 10_000)
	for i := range images {
		images[i] = fmt.Sprint("registry.example.com/a/b:", i)
	}
	if got := answered(t, p, question(t, "shop", images...)); !got.Allowed {
		t.Errorf("got %+v, want it allowed", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Review(ctx, question(t, "shop", images...)); err == nil {
		t.Error("got an answer after the time was over, want an error")
	}
}

// TestRead reads documents that are not ImageReviews.
func TestRead(t *testing.T) {
	p := policy(t, "{name: r, requireDigest: true}")
	f := func(body, want string) {
		t.Helper()
		_, err := p.Review(t.Context(), []byte(body))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
	const head = `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview"`
	f(head+`}`, "")
	f(head+`,"spec":null}`, "")
	f(head+`,"spec":{"containers":null}}`, "")
	f(``, "cannot read ImageReview")
	f(`{}`, "want")
	f(`rubbish`, "cannot read ImageReview")
	f(`{"apiVersion":"imagepolicy.k8s.io/v1beta1","kind":"ImageReview"}`,
		`got "imagepolicy.k8s.io/v1beta1", want "imagepolicy.k8s.io/v1alpha1"`)
	f(`{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"Pod"}`, `kind: got "Pod", want "ImageReview"`)
	f(head+`,"spec":{"containers":[{"image":"a"`, "cannot read ImageReview")
	if got := answered(t, p, []byte(head+`,"spec":{"containers":[null,{}]}}`)); got.Allowed {
		t.Errorf("got %+v, want containers without an image refused", got)
	}
}

// TestValidate tests all errors of a policy.
func TestValidate(t *testing.T) {
	f := func(rules, want string) {
		t.Helper()
		p := new(Policy)
		if err := yaml.UnmarshalStrict([]byte("rules: ["+rules+"]"), p); err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(field.NewPath("imageReview")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", rules, err, want)
		}
	}
	f("", "imageReview.rules: Required value")
	f("{requireDigest: true}", "imageReview.rules[0].name: Required value")
	f("{name: a, requireDigest: true}, {name: a, requireDigest: true}", `imageReview.rules[1].name: Duplicate value: "a"`)
	f("{name: a, namespaces: [b]}", "imageReview.rules[0]: Required value: want one of")
	f("{name: a, requireDigest: true, namespaces: ['']}", "imageReview.rules[0].namespaces[0]: Invalid value")
	f("{name: a, requireDigest: true, excludedNamespaces: ['[']}",
		"imageReview.rules[0].excludedNamespaces[0]: Invalid value: \"[\": syntax error in pattern")
	f("{name: a, refusedTags: ['[']}", "refusedTags[0]")
	f("{name: a, allowedRepositories: ['']}", "allowedRepositories[0]: Invalid value: \"\": got nothing")
	f("{name: a, allowedRepositories: [nginx]}", "as in docker.io/library/nginx")
	f("{name: a, allowedRepositories: [library/nginx]}", "want it to begin with a registry")
	f("{name: a, allowedRepositories: ['docker.io/library/nginx:1']}", "want a repository without a tag or digest")
	f("{name: a, refusedRepositories: ['docker.io/Nginx']}",
		"refusedRepositories[0]: Invalid value: \"docker.io/Nginx\": invalid reference format")
	f("{name: a, refusedRepositories: [index.docker.io]}", "want docker.io")
	f("{name: a, refusedRepositories: ['*']}", "want it to begin with a registry")
	f("{name: a, refusedRepositories: ['docker.io/a/*']}", "invalid reference format")
	if err := (*Policy)(nil).Validate(nil); err != nil {
		t.Errorf("got %v without a policy, want nothing", err)
	}
}

// TestOwned tests that an answer does not reference the memory of the request.
func TestOwned(t *testing.T) {
	p := policy(t, "{name: r, requireDigest: true}")
	body := admissiontest.Body(codec.Create, "v1/pods",
		`{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","spec":{"namespace":"shopshop",`+
			`"containers":[{"image":"abcdefg"},{"image":"?"}]}}`)
	admissiontest.CheckOwned(t, body, func(r *codec.Review) any {
		answer, err := p.Review(t.Context(), []byte(r.Object.Root().JSON()))
		if err != nil || answer.Allowed {
			t.Fatal(answer, err)
		}
		return answer
	})
}

// FuzzPolicy asks any valid policy about any image and ImageReview. Every answer can be decoded, and
// refuses with a reason.
func FuzzPolicy(f *testing.F) {
	f.Add("{name: r, allowedRepositories: ['*.example.com/team-*'], requireDigest: true}", "shop",
		"a.example.com:5000/team-x/web:1@sha256:00", "{}")
	f.Add("{name: r, refusedRepositories: [docker.io/library], namespaces: [a], refusedTags: [latest]}", "a", "nginx", "null")
	f.Fuzz(func(t *testing.T, rules, namespace, image, body string) {
		p := new(Policy)
		if yaml.UnmarshalStrict([]byte("rules: ["+rules+"]"), p) != nil || p.Validate(field.NewPath("imageReview")) != nil {
			return
		}
		if got := answered(t, p, question(t, namespace, image)); !got.Allowed && got.Reason == "" {
			t.Errorf("got %+v without a reason", got)
		}
		_, _ = p.Review(t.Context(), []byte(body))
	})
}
