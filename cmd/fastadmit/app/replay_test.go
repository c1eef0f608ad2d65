package app

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// replayed runs replay and expects its exit code and parts of its output.
func replayed(t *testing.T, stdin string, code int, want []string, args ...string) string {
	t.Helper()
	return ran(t, stdin, code, want, append([]string{"replay"}, args...)...)
}

// ran runs a command and expects its exit code and parts of its output.
func ran(t *testing.T, stdin string, code int, want []string, args ...string) string {
	t.Helper()
	stdout, stderr, gotCode := execute(stdin, args...)
	if gotCode != code {
		t.Errorf("%q: got exit code %d, want %d", args, gotCode, code)
	}
	for _, part := range want {
		if !strings.Contains(stdout+stderr, part) {
			t.Errorf("%q: got\n%s%swant it to have %q", args, stdout, stderr, part)
		}
	}
	return stdout
}

// recordTraffic records how a server with these plugins answers the reviews of Pods and Services in the
// corpus. It returns the folder.
func recordTraffic(t *testing.T, plugins string) (dir string, reviews int) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "recordings")
	s := serve(t, nil, "--enable-admission-plugins="+plugins, "--record-dir="+dir, "--record-sample=1", "--record-rate=1000000")
	x := s.Open(t)
	for _, name := range corpus.Names() {
		if !strings.HasPrefix(name, "pods-create-v1-") && !strings.HasPrefix(name, "services-create-v1-") &&
			!strings.HasPrefix(name, "secrets-") {
			continue
		}
		for _, path := range []string{"/mutate", "/validate"} {
			reviews++
			x.Send(servertest.Request(path, corpus.MustRead(name)))
		}
	}
	s.end(t)
	return dir, reviews
}

func TestReplay(t *testing.T) {
	dir, reviews := recordTraffic(t, "AlwaysPullImages")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != reviews {
		t.Fatalf("got %d recordings of %d reviews, %v", len(files), reviews, err)
	}
	same := fmt.Sprintf("%d reviews: %d with the same answer, 0 with another", reviews, reviews)
	replayed(t, "", 0, []string{same}, dir, "--enable-admission-plugins=AlwaysPullImages")
	replayed(t, "", 1, []string{
		"reviews differ, patch, as here: the stored object changes by [", `"path":"/spec/containers/0/imagePullPolicy"`,
		"denied to allowed by AlwaysPullImages",
	}, dir, "--enable-admission-plugins=DenyServiceExternalIPs")
	replayed(t, "", 1, []string{"reviews differ, allowed to denied by AlwaysDeny", "now denied by AlwaysDeny: "},
		dir, "--enable-admission-plugins=AlwaysPullImages,AlwaysDeny")
	stdout := replayed(t, "", 1, nil, dir, "--enable-admission-plugins=AlwaysDeny", "-o", "json")
	var report struct {
		Results []struct {
			Decision, Plugin, Resource, Change string
			Reviews                            int
		}
		Summary struct {
			Replay struct{ Reviews, Differing int }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if got := report.Summary.Replay; got.Reviews != reviews || got.Differing != reviews {
		t.Errorf("got the counts %+v, want %d", got, reviews)
	}
	// The archive has the same recordings.
	archive, _, code := execute("", "recordings", dir)
	if code != 0 {
		t.Fatalf("recordings: got exit code %d", code)
	}
	replayed(t, archive, 0, []string{same}, "-", "--enable-admission-plugins=AlwaysPullImages")
	// Another configuration instead of the recorded answers.
	before := servertest.TempFile(t, "before.yaml", configHead+"enableAdmissionPlugins: [AlwaysDeny]\n")
	replayed(t, "", 1, []string{"denied to allowed by AlwaysDeny"}, dir, "--enable-admission-plugins=AlwaysPullImages",
		"--against-config="+before)
}

// TestRecordFailure records a review whose plugin fails.
func TestRecordFailure(t *testing.T) {
	fails := admission.Plugin{Name: "Fails", Rules: []admission.Rule{admission.Any()}, Validates: true}
	fails.New = func(admission.Setup) (admission.Handler, error) {
		return admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result {
			return admission.Errored(errors.New("it is broken"))
		}}, nil
	}
	dir := filepath.Join(t.TempDir(), "recordings")
	s := serve(t, []admission.Plugin{fails}, "--enable-admission-plugins=Fails", "--record-dir="+dir, "--record-sample=0")
	s.Open(t).Send(servertest.Request("/validate/Fails", corpus.MustRead(servertest.PodCreate)))
	s.end(t)
	names, err := filepath.Glob(filepath.Join(dir, "*.failed"+recording.AnswerExtension))
	if err != nil || len(names) != 1 {
		t.Fatalf("got the recordings %q, %v", names, err)
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var answer recording.Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Plugin != "Fails" || answer.Endpoint != "validate/Fails" || !strings.Contains(answer.Message, "it is broken") {
		t.Errorf("got the answer %s", text)
	}
}

// TestReplayBroken replays truncated and forged recordings.
func TestReplayBroken(t *testing.T) {
	dir, _ := recordTraffic(t, "AlwaysPullImages")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	review, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	answer, err := os.ReadFile(strings.TrimSuffix(files[0], ".json") + ".answer")
	if err != nil {
		t.Fatal(err)
	}
	f := func(review, answer, want string) {
		t.Helper()
		dir := t.TempDir()
		servertest.WriteFile(t, filepath.Join(dir, "a.json"), review)
		if answer != "" {
			servertest.WriteFile(t, filepath.Join(dir, "a.answer"), answer)
		}
		replayed(t, "", 2, []string{want, "1 review: 0 with the same answer, 0 with another, 1 not asked"},
			dir, "--enable-admission-plugins=AlwaysPullImages")
	}
	f(string(review[:len(review)/2]), string(answer), "a.json: broken: ")
	f(string(review), string(answer[:len(answer)/2]), "cannot read the answer a.answer: ")
	f(string(review), "", "there is no answer to compare with")
	f(string(review), `{"decision":"maybe"}`, `decision: got "maybe", want allowed, denied or failed`)
	f(string(review), strings.Replace(string(answer), `"endpoint":"mutate"`, `"endpoint":"\u001b[2J"`, 1), `endpoint "\x1b[2J"`)
	f(string(review), strings.Replace(string(answer), `"decision":"allowed"`, `"decision":"denied"`, 1), "contradicts itself")
}

// auditLog has events of kube-apiserver: one of each kind that replay distinguishes.
var auditLog = auditEvent("Request", "RequestReceived", `"verb":"create"`) +
	auditEvent("Metadata", "ResponseComplete", `"verb":"get","objectRef":{"resource":"pods"},"responseStatus":{"code":200}`) +
	serviceEvent("create", `"code":201`, `{"externalIPs":["192.0.2.1"]}`) +
	serviceEvent("update", `"code":200`, `{}`) +
	serviceEvent("create", `"code":403,"message":"admission webhook \"v.fastadmit.io\" denied the request: no"`, `{}`)

// auditEvent returns a line of an audit log.
func auditEvent(level, stage, rest string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","level":%q,"stage":%q,%s}`+"\n", level, stage, rest)
}

// serviceEvent returns the event of a request for a Service with the spec.
func serviceEvent(verb, status, spec string) string {
	return auditEvent("Request", "ResponseComplete", fmt.Sprintf(`"verb":%q,"user":{"username":"u"},`+
		`"objectRef":{"resource":"services","namespace":"shop","name":"s","apiVersion":"v1"},"responseStatus":{%s},`+
		`"requestObject":{"kind":"Service","apiVersion":"v1","metadata":{"name":"s","namespace":"shop"},"spec":%s}`,
		verb, status, spec))
}

func TestReplayAuditLog(t *testing.T) {
	file := servertest.TempFile(t, "audit.log", auditLog)
	replayed(t, "", 1, []string{
		"audit.log:3: Service shop/s: 1 review differs, allowed to denied by DenyServiceExternalIPs",
		"audit.log:5: Service shop/s: 1 review differs, denied to allowed",
		"3 reviews: 1 with the same answer, 2 with another",
		"note: the source of 1 review lacks the object before the update",
	}, file, "--enable-admission-plugins=DenyServiceExternalIPs")
	metadata := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"create",` +
		`"objectRef":{"resource":"pods"},"responseStatus":{"code":201}}` + "\n"
	old := strings.Replace(metadata, "audit.k8s.io/v1", "audit.k8s.io/v1beta1", 1)
	replayed(t, metadata+old+`{"kind":"Ev`, 2, []string{
		`stdin:1: broken: an event of level "Metadata" does not hold the object`,
		`stdin:2: broken: got kind "Event" of "audit.k8s.io/v1beta1", want an Event of audit.k8s.io/v1`,
		"stdin:3: broken: cannot read the audit event",
	}, "-", "--enable-admission-plugins=DenyServiceExternalIPs")
}

func TestReplayManifests(t *testing.T) {
	before := servertest.TempFile(t, "before.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n")
	replayed(t, manifests, 1,
		[]string{"1 review differs, allowed to denied by DenyServiceExternalIPs", "2 reviews: 1 with the same answer, 1 with another"},
		"-", "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs", "--against-config="+before)
	replayed(t, manifests, 2, []string{"there is no answer to compare with"}, "-", "--enable-admission-plugins=AlwaysPullImages")
}

// TestReplayQuota checks that denials of a plugin that counts are skipped, and that the output says that the
// plugin is left out.
func TestReplayQuota(t *testing.T) {
	dir := t.TempDir()
	servertest.WriteFile(t, filepath.Join(dir, "a.json"), string(corpus.MustRead(servertest.PodCreate)))
	servertest.WriteFile(t, filepath.Join(dir, "a.answer"),
		`{"endpoint":"validate","decision":"denied","plugin":"ResourceQuota",`+
			`"review":{"response":{"allowed":false,"status":{"message":"ResourceQuota: no"}}}}`)
	replayed(t, "", 0,
		[]string{"1 skipped",
			"note: plugins that count or write are left out, and reviews that they denied are skipped: ResourceQuota"},
		dir, "--enable-admission-plugins=AlwaysPullImages,ResourceQuota")
}

// TestReplayHostile has names that terminals and GitHub would interpret as commands.
func TestReplayHostile(t *testing.T) {
	dir := t.TempDir()
	servertest.WriteFile(t, filepath.Join(dir, "a.json"),
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",`+
			`"kind":{"group":"","version":"v1","kind":"Pod"},`+
			`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"\u001b[2J\n::error ::x","name":"\n::warning ::y##[z]",`+
			`"operation":"CREATE","userInfo":{},"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}}`)
	servertest.WriteFile(t, filepath.Join(dir, "a.answer"),
		`{"endpoint":"validate","decision":"failed","plugin":"\u001b[2J","message":"\n::error ::x\u001b[2J##[z]"}`)
	for _, format := range replayFormats {
		stdout := replayed(t, "", 1, nil, dir, "--enable-admission-plugins=AlwaysPullImages", "-o", format)
		for line := range strings.Lines(stdout) {
			isOurs := format == "github" && strings.HasPrefix(line, "::error file=")
			if strings.ContainsAny(line, "\x1b") || strings.Contains(line, "##[") ||
				strings.HasPrefix(strings.TrimSpace(line), "::") && !isOurs {
				t.Errorf("%s: got the line %q", format, line)
			}
		}
	}
}

// TestRecordings has other files in the folder, which are not part of the archive, and halves of recordings.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.json", "b.answer", ".unfinished-c.json", "d.txt", "e.json", "f.answer", "g.json", "h.json"} {
		servertest.WriteFile(t, filepath.Join(dir, name), name)
	}
	err := errors.Join(os.Mkdir(filepath.Join(dir, "g.answer"), 0o700), os.Symlink("d.txt", filepath.Join(dir, "h.answer")))
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, code := execute("", "recordings", dir)
	if code != 0 {
		t.Fatalf("got exit code %d", code)
	}
	archive := tar.NewReader(strings.NewReader(stdout))
	var got []string
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.Name)
	}
	if want := "b" + recording.AnswerExtension + " b" + recording.ReviewExtension; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, stderr, code := execute("", "recordings", filepath.Join(dir, "none"))
	if code != 1 || !strings.Contains(stderr, "cannot read recordings") {
		t.Errorf("got exit code %d, %s", code, stderr)
	}
}
