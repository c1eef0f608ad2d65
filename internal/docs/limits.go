package docs

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A limit is a constant with its comment.
type limit struct {
	name, file, comment string
	value               string // as documents show it
}

// limitTable makes a table of constants, of which each line of lines names those of one folder. A folder whose first
// part has a dot is a package of another module. Constants that share a comment share a row.
func limitTable(document, lines string) (string, error) {
	table := "| limit | value | why |\n|---|---|---|\n"
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) < 2 {
			return "", fmt.Errorf("got the line %q, want a folder and its constants", line)
		}
		limits, err := limitsOf(words[0])
		if err != nil {
			return "", err
		}
		var names, values []string
		for i, name := range words[1:] {
			l, ok := limits[name]
			if !ok || l.comment == "" {
				return "", fmt.Errorf("%s: want a constant %s with a comment that derives its value", words[0], name)
			}
			names, values = append(names, l.cell(document)), append(values, l.value)
			if rest := words[i+2:]; len(rest) > 0 && limits[rest[0]].comment == l.comment {
				continue
			}
			table += fmt.Sprintf("| %s | %s | %s |\n", strings.Join(names, ", "), strings.Join(values, ", "), tableCell(l.reason()))
			names, values = nil, nil
		}
	}
	return table, nil
}

// cell is the name of the limit with that of its folder, as a link to its file if that is in the repository.
func (l *limit) cell(document string) string {
	name := "`" + path.Base(path.Dir(l.file)) + "." + l.name + "`"
	if path.IsAbs(l.file) {
		return name
	}
	return "[" + name + "](" + strings.Repeat("../", strings.Count(document, "/")) + l.file + ")"
}

// reason is the comment. Where it begins with "name is", these words are left out.
func (l *limit) reason() string {
	rest, ok := strings.CutPrefix(l.comment, l.name+" is ")
	if !ok {
		return l.comment
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// limitsOf returns the constants of the package in a folder, by name. It type-checks the package only as far as its
// constants need it: of other packages, it knows the units of package time.
func limitsOf(dir string) (map[string]limit, error) {
	if first, _, _ := strings.Cut(dir, "/"); strings.Contains(first, ".") {
		found, err := goList("-find", "-f", "{{.Dir}}", dir)
		if err != nil {
			return nil, err
		}
		dir = found[0]
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	limits := make(map[string]limit)
	written := make(map[string]ast.Expr)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
				addConstants(limits, written, d, path.Clean(filepath.ToSlash(name)))
			}
		}
	}
	config := types.Config{Error: func(error) {}, Importer: onlyTime{}, IgnoreFuncBodies: true}
	checked, _ := config.Check(dir, set, files, nil) // fails, because it does not know other packages
	for name, l := range limits {
		c, ok := checked.Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() == constant.Unknown {
			delete(limits, name)
			continue
		}
		l.value = amount(name, c, written[name])
		limits[name] = l
	}
	return limits, nil
}

// addConstants adds the constants of a declaration, with their comments and values. A constant without a comment
// gets the previous comment of the declaration if that names the constant.
func addConstants(limits map[string]limit, written map[string]ast.Expr, d *ast.GenDecl, file string) {
	last := d.Doc.Text()
	for _, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		comment := s.Doc.Text() + s.Comment.Text()
		if !d.Lparen.IsValid() {
			comment = last + comment
		}
		if comment != "" {
			last = comment
		}
		for i, name := range s.Names {
			l := limit{name: name.Name, file: file, comment: comment}
			if comment == "" && regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(last) {
				l.comment = last
			}
			limits[name.Name] = l
			if i < len(s.Values) {
				written[name.Name] = s.Values[i]
			}
		}
	}
}

// amount shows the value of a constant with its unit. A constant counts bytes if its name says so, or if its value
// is written as a shift; a share of N is shown as one Nth.
func amount(name string, c *types.Const, written ast.Expr) string {
	isShift := false
	if written != nil {
		ast.Inspect(written, func(node ast.Node) bool {
			binary, ok := node.(*ast.BinaryExpr)
			isShift = isShift || ok && binary.Op == token.SHL
			return true
		})
	}
	value := constant.ToInt(c.Val())
	n, isInt := constant.Int64Val(value)
	switch {
	case strings.HasSuffix(name, "Share") && isInt:
		return fmt.Sprintf("1/%d", n)
	case strings.HasSuffix(name, "Share"):
		return fmt.Sprintf("%s/%s", constant.Num(c.Val()), constant.Denom(c.Val()))
	case c.Type().String() == "time.Duration":
		return duration(time.Duration(n))
	case isShift || strings.Contains(strings.ToLower(name), "bytes"):
		return size(n)
	}
	return grouped(n)
}

func size(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return grouped(n) + " bytes"
}

func duration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if d > unit.is && d%unit.is == 0 || d == unit.is {
			return fmt.Sprintf("%d %s", d/unit.is, unit.name)
		}
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	const thousand = 1000
	if n < 10*thousand {
		return fmt.Sprint(n)
	}
	text := ""
	for ; n >= thousand; n /= thousand {
		text = fmt.Sprintf(",%03d", n%thousand) + text
	}
	return fmt.Sprint(n) + text
}

// onlyTime imports package time, and from it only the units.
type onlyTime struct{}

// Import implements types.Importer.
func (onlyTime) Import(name string) (*types.Package, error) {
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
