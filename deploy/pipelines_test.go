package deploy_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	pipelines = "../docs/pipelines.md"
	releases  = "https://github.com/fastadmit/fastadmit/releases/download"
)

// documented decodes the block of docs/pipelines.md that contains the text.
func documented(t *testing.T, contains string, into any) {
	t.Helper()
	for _, m := range yamlBlock.FindAllStringSubmatch(readFile(t, pipelines), -1) {
		if !strings.Contains(m[2], contains) {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(m[2]), into); err != nil {
			t.Fatalf("%s: %v in\n%s", pipelines, err, m[2])
		}
		return
	}
	t.Fatalf("%s has no block with %q", pipelines, contains)
}

// misspelt is a policy for a group that Kubernetes does not have.
const misspelt = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules: [{operations: [CREATE], apiGroups: [ap], apiVersions: [v1], resources: [deployments]}]
  validations: [{expression: object.spec.replicas > 1}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec: {policyName: replicas, validationActions: [Deny]}
`

// checkout returns a folder as that of a job: the configuration of docs/pipelines.md, manifests in deploy/, one of which the
// configuration denies, and a policy that can deny nothing.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var configuration map[string]any
	documented(t, "kind: Configuration", &configuration)
	text, err := yaml.Marshal(configuration)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "deploy"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"fastadmit.yaml":      string(text),
		"deploy/pod.yaml":     readFile(t, "../testdata/pod.yaml"),
		"deploy/service.yaml": readFile(t, "../testdata/service.yaml"),
		"misspelt.yaml":       misspelt,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// absolute returns the path of a file of the repository.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// program returns a program that runs the built fastadmit.
func program(t *testing.T) string { return "#!/bin/sh\nexec " + absolute(t, binary) + " \"$@\"\n" }

// published serves release 1.2.3 as the page of releases does: binaries for Linux, which run the built fastadmit, and SHA256SUMS. It
// replaces files of the release by others after their checksums were made. It returns the address and the checksum of SHA256SUMS.
func published(t *testing.T, replaced map[string]string) (address, checksum string) {
	t.Helper()
	files, sums := make(map[string]string), ""
	for _, name := range []string{"fastadmit-linux-amd64", "fastadmit-linux-arm64"} {
		files[name] = program(t)
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(program(t))), name)
	}
	files["SHA256SUMS"] = sums
	for name, content := range replaced {
		files[name] = content
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[strings.TrimPrefix(r.URL.Path, "/v1.2.3/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content)) // the client says if it fails
	}))
	t.Cleanup(server.Close)
	return server.URL, fmt.Sprintf("%x", sha256.Sum256([]byte(files["SHA256SUMS"])))
}

// An action is action.yml.
type action struct {
	Name, Author, Description string
	Branding                  map[string]string
	Inputs                    map[string]struct {
		Description, Default string
		Required             bool
	}
	Runs struct {
		Using string
		Steps []struct {
			Name, If, Shell, Run string
			Env                  map[string]string
		}
	}
}

// runAction runs the action as a runner of GitHub does, and returns what it prints and the exit code of the step that failed.
func runAction(t *testing.T, dir string, inputs map[string]string) (string, int) {
	t.Helper()
	var a action
	if err := yaml.UnmarshalStrict([]byte(readFile(t, "../action.yml")), &a); err != nil {
		t.Fatal(err)
	}
	var values []string
	for name, input := range a.Inputs {
		value, ok := inputs[name]
		if !ok && input.Required {
			t.Fatalf("got no input %s", name)
		} else if !ok {
			value = input.Default
		}
		values = append(values, "${{ inputs."+name+" }}", value)
	}
	temp, added, output := t.TempDir(), writeFile(t, "path", ""), ""
	for _, step := range a.Runs.Steps {
		if step.If == "inputs.args != ''" && inputs["args"] == "" {
			continue
		} else if step.If != "" && step.If != "inputs.args != ''" || step.Shell != "bash" || a.Runs.Using != "composite" {
			t.Fatalf("got %+v, want a step that this test can run", step)
		}
		cmd := exec.Command("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", writeFile(t, "step.sh", step.Run))
		cmd.Dir = dir
		path := strings.Join(append(strings.Fields(readFile(t, added)), os.Getenv("PATH")), ":")
		cmd.Env = []string{"PATH=" + path, "HOME=" + temp, "RUNNER_TEMP=" + temp, "GITHUB_PATH=" + added,
			"GITHUB_ACTION_PATH=" + absolute(t, "..")}
		for name, value := range step.Env {
			cmd.Env = append(cmd.Env, name+"="+strings.NewReplacer(values...).Replace(value))
		}
		text, err := cmd.CombinedOutput()
		if output += string(text); err != nil {
			return output, cmd.ProcessState.ExitCode()
		}
	}
	return output, 0
}

// TestAction runs the action's steps as docs/pipelines.md calls it, with a release that is served on the loopback.
func TestAction(t *testing.T) {
	t.Parallel()
	var steps []struct {
		Uses string
		With map[string]string
	}
	documented(t, "uses: fastadmit/fastadmit", &steps)
	with := steps[len(steps)-1].With
	good, checksum := published(t, nil)
	f := func(code int, want, address string, more map[string]string) {
		t.Helper()
		inputs := map[string]string{"version": with["version"], "args": with["args"], "releases": address}
		for name, value := range more {
			inputs[name] = value
		}
		if got, status := runAction(t, checkout(t), inputs); status != code || !strings.Contains(got, want) {
			t.Errorf("%v: got exit code %d, %s, want %d and %q", inputs, status, got, code, want)
		}
	}
	const finding = "::error file=deploy/service.yaml,line=1,"
	f(1, finding, good, map[string]string{"checksum": checksum})
	f(1, finding, good, nil)
	f(0, "", good, map[string]string{"args": "deploy/pod.yaml\n--config=fastadmit.yaml"})
	const idle, noted = "deploy/pod.yaml --config=fastadmit.yaml --policies=misspelt.yaml", `Kubernetes has no group "ap"`
	f(2, noted, good, map[string]string{"args": idle})
	f(0, noted, good, map[string]string{"args": idle + " --strict=false"})
	f(1, `"version": "2.1.0"`, good, map[string]string{"args": with["args"] + " -o sarif"})
	f(2, "deploy/*.yaml", good, map[string]string{"args": "deploy/*.yaml --config=fastadmit.yaml"})
	f(0, "", good, map[string]string{"args": ""})

	f(1, "::error title=fastadmit::checksum: got SHA256SUMS with "+checksum+", want \"0123\"", good, map[string]string{"checksum": "0123"})
	f(1, `::error title=fastadmit::version: got "v1.2.3", want that of a release`, good, map[string]string{"version": "v1.2.3"})
	f(1, `::error title=fastadmit::version: got "", want`, good, map[string]string{"version": ""}) // GitHub requires none
	f(1, `::error title=fastadmit::version: got "1.2.3??::debug::a", want`, good, map[string]string{"version": "1.2.3\n ::debug::a"})
	f(1, "::error title=fastadmit::cannot download SHA256SUMS of release 1.2.4", good, map[string]string{"version": "1.2.4"})
	other := map[string]string{"fastadmit-linux-amd64": "#!/bin/sh\necho replaced\n", "fastadmit-linux-arm64": "#!/bin/sh\necho replaced\n"}
	replaced, _ := published(t, other)
	f(1, fmt.Sprintf("want %x of SHA256SUMS", sha256.Sum256([]byte(program(t)))), replaced, nil)
	command := "  fastadmit-linux-amd64\n::debug::a  fastadmit-linux-amd64\n" // a line of its own would be a command of GitHub
	twice, _ := published(t, map[string]string{"SHA256SUMS": strings.ReplaceAll(strings.Repeat("0", 64)+command, "amd64", runtime.GOARCH)})
	f(1, "want "+strings.Repeat("0", 64)+" of SHA256SUMS", twice, nil)
	none, _ := published(t, map[string]string{"SHA256SUMS": strings.Repeat("0", 64) + "  fastadmit-plan9-amd64\n"})
	f(1, "::error title=fastadmit::release 1.2.3 has no fastadmit-linux-", none, nil)
}

// TestActionInputs checks that the document names all inputs of the action and no others.
func TestActionInputs(t *testing.T) {
	t.Parallel()
	var a action
	if err := yaml.UnmarshalStrict([]byte(readFile(t, "../action.yml")), &a); err != nil {
		t.Fatal(err)
	}
	document := readFile(t, pipelines)
	for name, input := range a.Inputs {
		if input.Description == "" || !strings.Contains(document, "\n| `"+name+"` | ") {
			t.Errorf("input %s: got no description in action.yml, or none in %s", name, pipelines)
		}
	}
	var steps []struct {
		Uses string
		With map[string]string
	}
	documented(t, "uses: fastadmit/fastadmit", &steps)
	for name := range steps[len(steps)-1].With {
		if _, ok := a.Inputs[name]; !ok {
			t.Errorf("%s: got the input %s, which action.yml does not have", pipelines, name)
		}
	}
}

// TestGitLab runs the script of the job for GitLab, with a release that is served on the loopback.
func TestGitLab(t *testing.T) {
	t.Parallel()
	var jobs map[string]struct {
		Image struct {
			Name       string
			Entrypoint []string
		}
		Variables map[string]string
		Script    []string
		Artifacts struct {
			When    string
			Reports map[string]string
		}
	}
	documented(t, "script:", &jobs)
	job := jobs["fastadmit"]
	f := func(address string, of ...string) (string, string, error) {
		dir := checkout(t)
		cmd := exec.Command("sh", "-e", "-c", strings.NewReplacer(of...).Replace(strings.Join(job.Script, "\n")))
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		for name, value := range job.Variables {
			if !strings.HasPrefix(value, releases+"/v") {
				t.Errorf("got %s=%s, want the page of a release", name, value)
			}
			cmd.Env = append(cmd.Env, name+"="+strings.Replace(value, releases, address, 1))
		}
		said, err := cmd.CombinedOutput()
		report, _ := os.ReadFile(filepath.Join(dir, job.Artifacts.Reports["junit"])) // there is none if the script fails before
		return string(said), string(report), err
	}
	good, _ := published(t, nil)
	said, report, err := f(good)
	if err == nil || !strings.Contains(report, "<testsuite ") || !strings.Contains(report, "Use of external IPs is denied") {
		t.Errorf("got %v %s and the report %s, want a failure of the Service", err, said, report)
	}
	said, _, err = f(good, "review deploy/", "review deploy/pod.yaml --policies=misspelt.yaml")
	if err == nil || err.Error() != "exit status 2" || !strings.Contains(said, "fastadmit: --strict: ") {
		t.Errorf("got %v %s, want the policy refused", err, said)
	}
	bad, _ := published(t, map[string]string{"fastadmit-linux-amd64": "#!/bin/sh\necho replaced >ran\n"})
	if said, report, err = f(bad); err == nil || report != "" || !strings.Contains(said, "FAILED") {
		t.Errorf("got %v %s and the report %s, want that a replaced binary does not run", err, said, report)
	}
}

// TestTekton runs the step of the Task for Tekton.
func TestTekton(t *testing.T) {
	t.Parallel()
	var task struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Params []struct {
				Name, Type string
				Default    []string
			}
			Workspaces []struct{ Name string }
			Steps      []struct {
				Name, Image, WorkingDir string
				Command, Args           []string
			}
		}
	}
	documented(t, "kind: Task", &task)
	step := task.Spec.Steps[0]
	if step.WorkingDir != "$(workspaces."+task.Spec.Workspaces[0].Name+".path)" || !slices.Equal(step.Command, []string{"/fastadmit"}) {
		t.Errorf("got %+v, want the image's program in the workspace", step)
	}
	param := task.Spec.Params[0]
	var arguments []string
	for _, argument := range step.Args {
		if argument == "$(params."+param.Name+"[*])" {
			arguments = append(arguments, param.Default...)
		} else {
			arguments = append(arguments, argument)
		}
	}
	reviewed(t, arguments...)
	strict(t, arguments...)
}

// reviewed runs fastadmit in a checkout, with arguments that must deny its Service.
func reviewed(t *testing.T, arguments ...string) {
	t.Helper()
	cmd := exec.Command(absolute(t, binary), arguments...)
	cmd.Dir = checkout(t)
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), "Service shop/web: denied by DenyServiceExternalIPs") {
		t.Errorf("%q: got %v %s, want the Service denied", arguments, err, said)
	}
}

// strict runs fastadmit with arguments that must fail because of a policy that can deny nothing.
func strict(t *testing.T, arguments ...string) {
	t.Helper()
	arguments = append(slices.Clone(arguments), "--policies=misspelt.yaml")
	for i := range arguments {
		if arguments[i] == "deploy/" {
			arguments[i] = "deploy/pod.yaml"
		}
	}
	cmd := exec.Command(absolute(t, binary), arguments...)
	cmd.Dir = checkout(t)
	said, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(said), "fastadmit: --strict: ") {
		t.Errorf("%q: got %d %s, want the policy refused", arguments, cmd.ProcessState.ExitCode(), said)
	}
}

// TestPreCommit runs the hooks as pre-commit does, for the document's example. If there is pre-commit, it checks the hooks, too.
func TestPreCommit(t *testing.T) {
	t.Parallel()
	const file = "../.pre-commit-hooks.yaml"
	var hooks []struct {
		ID, Name, Description, Entry, Language string
		TypesOr                                []string `json:"types_or"`
		RequireSerial                          bool     `json:"require_serial"`
	}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, file)), &hooks); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Repos []struct {
			Repo, Rev string
			Hooks     []struct {
				ID, Files     string
				PassFilenames bool `json:"pass_filenames"`
				Args          []string
			}
		}
	}
	documented(t, "repos:", &config)
	used := config.Repos[0].Hooks[0]
	languages := make(map[string]string)
	for _, hook := range hooks {
		languages[hook.ID] = hook.Language
		words := strings.Fields(hook.Entry)
		if words[0] != "fastadmit" || !hook.RequireSerial || !slices.Equal(hook.TypesOr, []string{"yaml", "json"}) {
			t.Errorf("got %+v, want one call of fastadmit for all files", hook)
		}
		if used.PassFilenames {
			t.Error("got the changed files for --strict, want the whole folder")
		}
		reviewed(t, slices.Concat(words[1:], used.Args)...)
		reviewed(t, slices.Concat(words[1:], []string{"--config=fastadmit.yaml", "deploy/pod.yaml", "deploy/service.yaml"})...)
		strict(t, slices.Concat(words[1:], used.Args)...)
		if !strings.Contains(readFile(t, pipelines), "`"+hook.ID+"`") {
			t.Errorf("%s does not name the hook %s", pipelines, hook.ID)
		}
	}
	// pre-commit installs the commands of a Go module at the root.
	if languages[used.ID] != "golang" || !strings.Contains(readFile(t, "../cmd/fastadmit/main.go"), "\npackage main\n") {
		t.Errorf("got the hook %q of %v, want the one that builds cmd/fastadmit", used.ID, languages)
	}
	if program, err := exec.LookPath("pre-commit"); err == nil {
		run(t, program, "validate-manifest", file)
	}
}
