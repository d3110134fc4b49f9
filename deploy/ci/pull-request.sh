#!/bin/sh
# What sluice says of a pull request: validates, tests and plans the configuration,
# writes one comment that later runs write over, and sets a status of the commit.
# It ends with 0 if a merge is safe as far as sluice can tell.
#
# It runs in a checkout, under GitHub Actions, GitLab CI or Gitea Actions, and needs
# sluice, git and a token (see `sluice report --help`). What may be set:
#   SLUICE_DIR     the folder of the configuration (default: the checkout)
#   SLUICE_BASE    the revision that a merge begins at (default: the target branch)
#   SLUICE_SERVER  a server's admin API, as a URL or a socket: the plan begins at
#                  what its nodes hold, and SLUICE_BASE is not used
#   SLUICE_TOKEN   the token for it; one that may only read is enough. Without one, as
#                  in a fork's pull request, a URL is not asked
#   SLUICE_SERVER_CA  who vouches for it, if the system's authorities do not
#   SLUICE_ENV     the environment's name, where a repository holds several
#   SLUICE_ALLOW   hazards to accept, with commas
set -u

dir=${SLUICE_DIR:-.}
server=${SLUICE_SERVER:-} token=${SLUICE_TOKEN:-} base=${SLUICE_BASE:-} allow=${SLUICE_ALLOW:-} env=${SLUICE_ENV:-}
# They are flags here, and must not reach the commands that know them otherwise; the
# token is for the plan alone.
unset SLUICE_SERVER SLUICE_TOKEN SLUICE_BASE SLUICE_ALLOW
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# A report that fails stops nothing.
report() {
  sluice report ${env:+--name "$env"} "$@" || echo "warning: the report failed; what was found stands above" >&2
}

# done_with STATE WORDS CODE: the comment is in $tmp/comment.
done_with() {
  report --comment "$tmp/comment" --state "$1" --description "$2"
  exit "$3"
}

# failed TITLE FILE: a command said what is wrong.
failed() {
  {
    printf '<!-- sluice:plan -->\n### sluice: %s\n\n```\n' "$1"
    head -c 60000 "$2" | sed "s/\`\`\`/'''/g"
    printf '\n```\n'
  } >"$tmp/comment"
  cat "$2"
  done_with failure "$1" 1
}

report --state pending --description 'planning'

case $server in
http://* | https://*)
  if [ -z "$token${SLUICE_TOKEN_FILE:-}${SLUICE_CLIENT_CERT:-}" ]; then
    echo "note: there is no token for $server, so the plan begins at the target branch" >&2
    server=
  fi
  ;;
esac

# fetch BRANCH: what a merge begins at, and the commits that nodes may hold.
fetch() {
  git fetch --quiet --no-tags origin "+refs/heads/$1:refs/remotes/origin/$1" || exit 1
}

target=${GITHUB_BASE_REF:-${CI_MERGE_REQUEST_TARGET_BRANCH_NAME:-}}
if [ -n "$server" ]; then
  if [ -n "$target" ]; then fetch "$target"; fi
elif [ -z "$base" ]; then
  if [ -n "${GITHUB_BASE_REF:-}" ]; then
    fetch "$GITHUB_BASE_REF"
    base=origin/$GITHUB_BASE_REF
  elif [ -n "${CI_MERGE_REQUEST_DIFF_BASE_SHA:-}" ]; then
    base=$CI_MERGE_REQUEST_DIFF_BASE_SHA
    git cat-file -e "$base^{commit}" 2>/dev/null || git fetch --quiet --no-tags origin "$base" || exit 1
  else
    base=origin/HEAD
  fi
fi

sluice validate "$dir" >"$tmp/out" 2>&1 || failed 'the configuration is not valid' "$tmp/out"
if [ "${GITHUB_ACTIONS:-}" = true ]; then sluice validate -q -o github "$dir"; fi # warnings, beside their lines
sluice test "$dir" >"$tmp/out" 2>&1 || failed 'a route test fails' "$tmp/out"

set -- -o markdown
if [ -n "$server" ]; then set -- "$@" --server "$server"; else set -- "$@" --base "$base"; fi
if [ -n "$allow" ]; then set -- "$@" --allow "$allow"; fi
SLUICE_TOKEN=$token sluice plan "$@" "$dir" >"$tmp/comment" 2>"$tmp/err"
code=$?
cat "$tmp/comment"
cat "$tmp/err" >&2
case $code in
0) done_with success "$(sed -n 4p "$tmp/comment")" 0 ;;
3) done_with failure "$(sed -n 's/^error: //p' "$tmp/err" | head -n 1)" 3 ;;
*) failed 'no plan can be made' "$tmp/err" ;;
esac
