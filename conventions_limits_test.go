package fastadmit_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bounds are the constants behind the table of limits in ARCHITECTURE.md: the start
// of a row's name, and how the row shows what is in the code. Where that is no
// constant of a package, it is the text of a file.
var bounds = []struct{ row, shown, in, is string }{
	{"body", "32 MiB", "cmd/fastadmit/app", "bodyBytesMax"},
	{"header block", "16 KiB", "cmd/fastadmit/app", "headerBytesMax"},
	{"reading a request, writing an answer", "30 s", "cmd/fastadmit/app/conn.go", "read: budgetMax, write: budgetMax"},
	{"reading a request, writing an answer", "30 s", "cmd/fastadmit/app", "budgetMax"},
	{"TLS handshake", "10 s", "cmd/fastadmit/app/conn.go", "handshake: 10 * time.Second"},
	{"bytes that TLS keeps", "24 KiB", "cmd/fastadmit/app", "keptBytesMax"},
	{"handshakes that compute at a time", "one for each processor", "cmd/fastadmit/app/turns.go", "runtime.GOMAXPROCS(0)"},
	{"idle connection", "120 s", "cmd/fastadmit/app/conn.go", "idle: 120 * time.Second"},
	{"age of a connection", "10 min", "cmd/fastadmit/app", "connectionAgeMax"},
	{"connections", "42 KiB", "cmd/fastadmit/app", "connectionBytes"},
	{"connections", "10,000", "cmd/fastadmit/app", "connectionsMost"},
	{"connections", "and 64,", "cmd/fastadmit/app", "filesReserved"},
	{"connections of strangers at one address", "a quarter", "cmd/fastadmit/app", "addressShare"},
	{"connections of the ops port", "128", "cmd/fastadmit/app", "opsConnectionsMax"},
	{"pause after accepting failed", "5 ms", "cmd/fastadmit/app", "acceptDelayMin"},
	{"pause after accepting failed", "1 s", "cmd/fastadmit/app", "acceptDelayMax"},
	{"path token", "26", "internal/registration/pathtoken", "LengthMin"},
	{"path token", "63", "internal/registration/pathtoken", "LengthMax"},
	{"path token", "16", "internal/registration/pathtoken", "TokensMax"},
	{"life of a path token", "1 day", "internal/registration/certs", "DefaultPathTokenLife"},
	{"requests in flight", "1000", "cmd/fastadmit/app", "requestsInFlightMax"},
	{"bytes that bodies in flight take", "128 MiB", "cmd/fastadmit/app", "bytesInFlightMax"},
	{"a body on its way", "1 s", "cmd/fastadmit/app", "arrivalGrace"},
	{"a body on its way", "128 KiB", "cmd/fastadmit/app", "arrivalPace"},
	{"a body on its way", "100 ms", "cmd/fastadmit/app", "arrivalPause"},
	{"a call whose plugin does not return", "1 s", "cmd/fastadmit/app", "stuckGrace"},
	{"a call whose plugin does not return", "100", "cmd/fastadmit/app", "stuckMax"},
	{"memory of all reviews over 64 KiB", "64 KiB", "cmd/fastadmit/app", "cheapBytes"},
	{"memory of all reviews over 64 KiB", "three eighths", "cmd/fastadmit/app/memory.go", "reviewMemoryShare = 3.0 / 8"},
	{"memory of all reviews over 64 KiB", "1 GiB", "cmd/fastadmit/app", "reviewMemoryDefault"},
	{"memory of all reviews over 64 KiB", "160 MiB", "cmd/fastadmit/app", "reviewMemoryMax"},
	{"memory of all reviews over 64 KiB", "a sixteenth", "cmd/fastadmit/app/memory.go", "smallShare = 16"},
	{"the same for smaller reviews", "64 KiB", "codec", "memoryUsual"},
	{"the same for smaller reviews", "16 KiB", "cmd/fastadmit/app", "memoryFreely"},
	{"answer and body buffers kept", "64 KiB", "cmd/fastadmit/app", "cheapBytes"},
	{"memory that connections of known callers keep", "a sixteenth", "cmd/fastadmit/app/kept.go", "keptShare = 16"},
	{"memory that connections of known callers keep", "64 MiB", "cmd/fastadmit/app", "keptDefault"},
	{"memory that connections of known callers keep", "8 KiB", "cmd/fastadmit/app", "strangerKeptMax"},
	{"digits of a quantity", "10,000", "internal/quantity", "PlacesMax"},
	{"messages that a plugin collects", "4 MiB", "admission", "MessagesBytesMax"},
	{"time of a call", "30 s", "cmd/fastadmit/app", "budgetMax"},
	{"finishing after SIGTERM", "35 s", "cmd/fastadmit/app", "finishMax"},
	{"what plugins do beside reviews, after that", "2 s", "cmd/fastadmit/app", "pluginsEndMax"},
	{"a new connection at shutdown", "5 s", "cmd/fastadmit/app/conn.go", "fresh: 5 * time.Second"},
	{"plugins of a chain", "128", "admission", "pluginsMax"},
	{"name of an image in an ImageReview", "1024", "internal/imagereview", "nameBytesMax"},
	{"name of an image in an ImageReview", "5", "internal/imagereview", "refusalsMax"},
	{"answers of an image policy backend", "4 MiB", "handlers/imagepolicywebhook", "answerBytesMax"},
	{"answers of an image policy backend", "1024", "handlers/imagepolicywebhook", "answersMax"},
	{"answers of an image policy backend", "64 KiB", "handlers/imagepolicywebhook", "keptBytesMax"},
	{"answers of an image policy backend", "100", "handlers/imagepolicywebhook", "callsMax"},
	{"time of a question to an image policy", "a tenth", "handlers/imagepolicywebhook/asker.go", "spareShare = 10"},
	{"time of a question to an image policy", "0.5 s", "handlers/imagepolicywebhook/asker.go", "spareMax   = 500 * time.Millisecond"},
	{"folder of manifests", "10,000", "internal/files", "FolderFilesMax"},
	{"folder of manifests", "16 MiB", "internal/files", "BytesMax"},
	{"cost of a policy's CEL", "10,000,000 all validations", "handlers/validatingadmissionpolicy/validator.go", "celconfig.RuntimeCELCostBudget)"},
	{"cost of a policy's CEL", "2,500,000 its matchConditions", "internal/policy/cel/conditions.go", "celconfig.RuntimeCELCostBudgetMatchConditions)"},
	{"cost of a policy's CEL", "each mutation", "handlers/mutatingadmissionpolicy/dispatch.go", "celconfig.RuntimeCELCostBudget)"},
	{"cost of a policy's CEL", "every 100 iterations", "internal/policy/cel/evaluate.go", "celconfig.CheckFrequency"},
	{"copies by the JSON Patch of a policy", "3 MiB", "internal/policy/patching", "copiesBytesMax"},
	{"nesting of a value of an object that CEL compares", "10,000", "internal/policy/cel", "decodedDepthMax"},
	{"nesting of a value of an object that CEL compares", "64", "internal/policy/cel", "depthMax"},
	{"work on one regular expression of an object in CEL", "1,048,576", "internal/policy/cel", "regexpWork"},
	{"memory for a regular expression of an object in CEL", "256", "internal/policy/cel", "regexpBytes"},
	{"calls of one webhook of others in flight", "200", "handlers/internal/webhook", "callsMax"},
	{"answer of a webhook of others", "8 MiB", "handlers/internal/webhook", "answerBytesMax"},
	{"time that such a call leaves for the answer", "0.5 s", "handlers/internal/webhook/dispatch.go", "reserveMax = 500 * time.Millisecond"},
	{"elements moved by the JSON Patch of a policy", "64 MiB", "internal/policy/patching", "movedBytesMax"},
	{"nesting of a configuration file", "64", "internal/strictyaml", "depthMax"},
	{"live request of the API server", "5 s", "cluster/watch.go", "live:    5 * time.Second"},
	{"watch without an event", "3 min", "cluster/watch.go", "quiet:   3 * time.Minute"},
	{"requests to kube-apiserver", "50", "cluster", "qps"},
	{"requests to kube-apiserver", "100", "cluster", "burst"},
	{"names of who waits", "256", "cluster", "callerNameMax"},
	{"questions about the rights", "50", "cluster", "questionsMax"},
	{"what plugins remember by names", "8192", "cluster", "accessMax"},
	{"what plugins remember by names", "512", "handlers/ownerreferencespermissionenforcement", "mapperMax"},
	{"what plugins remember by names", "10,000", "handlers/limitranger", "askedMax"},
	{"what plugins remember by names", "1000", "handlers/namespacelifecycle", "recentMax"},
	{"what plugins remember by names", "4096", "handlers/eventratelimit", "cacheSizeDefault"},
	{"kinds of parameters that are watched", "32", "cluster", "dynamicKindsMax"},
	{"JSON of one such kind", "32 MiB", "cluster", "dynamicBytesMax"},
	{"OpenAPI document of a group version", "32 MiB", "cluster", "schemaBytesMax"},
	{"group versions whose schemas are kept", "32", "internal/policy/schemas", "parsersMax"},
	{"group versions whose schemas are kept", "an hour", "internal/policy/schemas/schemas.go", "parserTTL = time.Hour"},
	{"types that a rule is checked against", "10", "internal/policy", "checkedTypesMax"},
	{"policies with series of their own", "1,000", "internal/policy", "policiesMeasuredMax"},
	{"question about the rights", "1 MiB", "cluster", "accessBytesMax"},
	{"tries to charge a quota", "50", "handlers/resourcequota", "conflictsMax"},
	{"tries to charge a quota", "3", "handlers/resourcequota", "failuresMax"},
	{"quotas kept as they were written", "1000", "handlers/resourcequota", "writtenMax"},
	{"linger after a refusal", "2 s", "cmd/fastadmit/app", "lingerMax"},
	{"linger after a refusal", "32 MiB", "cmd/fastadmit/app", "lingerBytesMax"},
	{"warnings", "4096", "codec", "warningRunesMax"},
	{"message of a denial or failure", "32 KiB", "codec", "MessageBytesMax"},
	{"details of a denial", "24 KiB", "codec", "DetailsBytesMax"},
	{"audit annotations", "32 KiB", "codec", "annotationBytesMax"},
	{"memory an Object keeps", "64 KiB", "codec", "arenaBytesMax"},
	{"memory an Object keeps", "1024", "codec", "nodesMax"},
	{"memory an Object takes beside its text", "64 MiB", "codec", "MemoryMax"},
	{"string, or name of a member", "4 MiB", "codec", "StringMax"},
	{"patch", "131,072", "diff", "OperationsMax"},
	{"patch", "16 MiB", "diff", "PatchBytesMax"},
	{"parts compared in a value", "256", "diff", "comparedMax"},
	{"parts compared in a value", "64", "diff", "depthMax"},
	{"log", "20", "cmd/fastadmit/app", "logsPerSecond"},
	{"log", "100", "cmd/fastadmit/app", "logsBurst"},
	{"lines about failed TLS handshakes", "1", "cmd/fastadmit/app", "strangersLogsPerSecond"},
	{"lines about failed TLS handshakes", "10", "cmd/fastadmit/app", "strangersLogsBurst"},
	{"lines of the log that wait", "128", "cmd/fastadmit/app", "logQueueMax"},
	{"lines of the log that wait", "1 s", "cmd/fastadmit/app", "logFlushMax"},
	{"value, text", "640", "cmd/fastadmit/app", "logValueBytesMax"},
	{"value, text", "8 KiB", "cmd/fastadmit/app", "logTextBytesMax"},
	{"file that an operator names", "16 MiB", "internal/files", "BytesMax"},
	{"file that an operator names", "512 MiB", "cluster", "stateBytesMax"},
	{"objects in memory in an audit", "8", "internal/offline/audit", "queueLength"},
	{"attempts for a page of a list", "6", "internal/offline/audit", "attemptsMax"},
	{"results of a report, message of a result", "100", "internal/offline/audit", "findingsMax"},
	{"results of a report, message of a result", "4096", "internal/offline/audit", "messageMax"},
	{"namespaces with series of their own", "500", "cmd/fastadmit/app", "auditNamespacesMax"},
	{"series of metrics", "450", "deploy/monitoring_test.go", "seriesOfServer = 450"},
	{"series of metrics", "170", "deploy/monitoring_test.go", "seriesOfPlugin = 170"},
}

// TestConventionsLimits compares the table of limits with the code.
func TestConventionsLimits(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "\n| limit | value | because |\n|---|---|---|\n")
	rows := make(map[string]bool) // whether something is known of it
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		rows[line] = false
	}
	packages := make(map[string]*types.Package)
	for _, b := range bounds {
		found := ""
		for line := range rows {
			name := strings.TrimPrefix(line, "| ")
			if rest, ok := strings.CutPrefix(name, b.row); ok && (found == "" || strings.HasPrefix(rest, " | ")) {
				found = line
			}
		}
		if found == "" {
			t.Errorf("ARCHITECTURE.md has no limit %q", b.row)
			continue
		}
		rows[found] = true
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(b.shown)).MatchString(found) {
			t.Errorf("ARCHITECTURE.md: %s: want %s, as in %s", strings.TrimSpace(found), b.shown, b.in)
		}
		if path.Ext(b.in) == ".go" {
			if !strings.Contains(read(t, b.in), b.is) {
				t.Errorf("%s: got no %q, as ARCHITECTURE.md shows with %q", b.in, b.is, b.row)
			}
			continue
		}
		if packages[b.in] == nil {
			packages[b.in] = constantsOf(t, b.in)
		}
		checkBound(t, packages[b.in].Scope().Lookup(b.is), b.shown, b.in+"."+b.is)
	}
	for line, known := range rows {
		if !known {
			t.Errorf("ARCHITECTURE.md: nothing in bounds says where this is in the code: %s", line)
		}
	}
}

func checkBound(t *testing.T, object types.Object, shown, name string) {
	t.Helper()
	c, ok := object.(*types.Const)
	if !ok {
		t.Errorf("got no constant %s", name)
		return
	}
	got, _ := constant.Float64Val(constant.ToFloat(c.Val()))
	if want := amountOf(t, shown); got != want {
		t.Errorf("%s: got %v, and ARCHITECTURE.md shows %s", name, got, shown)
	}
}

var units = map[string]float64{
	"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"ms": float64(time.Millisecond), "s": float64(time.Second), "min": float64(time.Minute), "day": float64(24 * time.Hour),
}

// amountOf reads what the table shows.
func amountOf(t *testing.T, shown string) float64 {
	if shown == "a quarter" {
		return 4 // as a share is written in the code
	}
	match := regexp.MustCompile(`^(?:and )?([0-9,]*[0-9])(?: (\w+))?,?$`).FindStringSubmatch(shown)
	if match == nil {
		t.Fatalf("cannot read %q", shown)
	}
	number, err := strconv.ParseFloat(strings.ReplaceAll(match[1], ",", ""), 64)
	unit, ok := units[match[2]]
	if err != nil || !ok {
		t.Fatalf("cannot read %q", shown)
	}
	return number * unit
}

// constantsOf type-checks the files of a package as far as their constants need it:
// of what they import, nothing but the units of package time.
func constantsOf(t *testing.T, dir string) *types.Package {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	if len(parsed) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, os.ErrNotExist)
	}
	config := types.Config{Error: func(error) {}, Importer: onlyTimes{}, IgnoreFuncBodies: true}
	checked, _ := config.Check(dir, set, parsed, nil) // of what is not imported it knows nothing, which is an error
	return checked
}

// onlyTimes has a package time with its units and nothing else.
type onlyTimes struct{}

func (onlyTimes) Import(name string) (*types.Package, error) {
	if name != "time" {
		return nil, fmt.Errorf("%s is not imported here", name)
	}
	p := types.NewPackage(name, name)
	duration := types.NewNamed(types.NewTypeName(token.NoPos, p, "Duration", nil), types.Typ[types.Int64], nil)
	p.Scope().Insert(duration.Obj())
	for unit, value := range map[string]time.Duration{
		"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
		"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
	} {
		p.Scope().Insert(types.NewConst(token.NoPos, p, unit, duration, constant.MakeInt64(int64(value))))
	}
	p.MarkComplete()
	return p, nil
}
